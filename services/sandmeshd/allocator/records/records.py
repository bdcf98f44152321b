"""Sandboxes' records: what the store has of one, and the message that callers see."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.api.errors.v1 import errors_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import SandboxStartFailed, SandmeshError, from_detail
from sandmesh.shared.numbers import decimal

log = structlog.get_logger()

_LARGEST_TOKEN = 10**18 - 1
"""What release.lua compares; a token that is none lets the owner of a damaged record delete it by any."""

IDLE_REASON: Final = "it was not used for its idle time"
"""Why a sandbox is released or paused that its holder does not use."""

NANO = 1_000_000_000
"""Costs are counted in thousand-millionths."""

# What the labels of a sandbox hold; its spec and address are the driver's own to keep.
_LABELS = (
    "session", "slot", "user", "session_name", "caller", "token", "deadline_us", "ttl_us", "idle_us", "created_us",
    "on_idle", "auto_resume", "template", "spec_key", "ports", "generation", "workspace", "project",
)  # fmt: skip

_PAUSE_MODES = {"memory": pb.PAUSE_MODE_MEMORY, "files": pb.PAUSE_MODE_FILES, "checkpoint": pb.PAUSE_MODE_CHECKPOINT}


@dataclass(frozen=True)
class RecordState:
    """A record as it was at one moment."""

    fields: Mapping[str, bytes]

    def text(self, name: str) -> str:
        """Return a plain field; one that is missing is empty."""
        return self.fields.get(name, b"").decode()

    def shown(self, name: str) -> str:
        """Return a plain field of a record that may be damaged, for what looks at many."""
        return self.fields.get(name, b"").decode(errors="replace")

    def number(self, name: str) -> int:
        """Return a plain field that is a number; one that is missing is 0."""
        return int(self.fields.get(name, b"") or b"0")

    @property
    def sandbox_id(self) -> str:
        """The sandbox."""
        return self.shown("id")

    @property
    def state(self) -> str:
        """Its state, as the enum names it without the prefix; empty where there is no record."""
        return self.text("state")

    @property
    def node_id(self) -> str:
        """The node that runs it."""
        return self.text("node")

    @property
    def owner(self) -> str:
        """The allocator that starts, pauses or resumes it."""
        return self.text("owner")

    @property
    def token(self) -> int:
        """The fencing token in force."""
        return self.number("token")

    @property
    def workspace(self) -> str:
        """What its workspace is saved under; empty where it is not."""
        return self.text("workspace")

    @property
    def spec(self) -> pb.SandboxSpec:
        """What it is."""
        return pb.Sandbox.FromString(self.fields["body"]).spec

    @property
    def ports(self) -> list[int]:
        """The ports that it holds."""
        return [int(port) for port in self.text("ports").split(",") if port]

    @property
    def access(self) -> driver_pb2.RuntimeSandbox:
        """How to reach it: endpoint, agent token, and what is enforced."""
        return driver_pb2.RuntimeSandbox.FromString(self.fields.get("access", b""))

    @property
    def failure(self) -> SandmeshError:
        """Why it is FAILED, as it was raised."""
        data = self.fields.get("failure", b"")
        if not data:
            return SandboxStartFailed(self.text("reason"), {"detail": self.text("reason")})
        return from_detail(errors_pb2.ErrorDetail.FromString(data))

    def labels(self) -> dict[str, str]:
        """Return what a driver stores with the sandbox, to rebuild this record from."""
        return {name: self.text(name) for name in _LABELS}

    def lease(self) -> pb.Lease | None:
        """Return the lease, or None where the sandbox is unused."""
        if not self.text("holder"):
            return None
        expire, ttl_us = timestamp(self.number("deadline_us")), self.number("ttl_us")
        ttl = span(ttl_us) if ttl_us else None
        return pb.Lease(holder=self.text("holder"), fencing_token=self.token, expire_time=expire, ttl=ttl)

    def sandbox(self) -> pb.Sandbox:
        """Return the record as clients see it; one that cannot be read is FAILED, which its owner may delete."""
        try:
            return self._sandbox()
        except (ValueError, KeyError, DecodeError) as error:
            log.warning(
                "a record cannot be read: delete it with `sandmesh rm`", record=self.sandbox_id, error=str(error)
            )
            reason = "its record in the store cannot be read: delete the sandbox"
            lease = pb.Lease(fencing_token=decimal(self.shown("token"), _LARGEST_TOKEN) or 1)
            state = pb.SANDBOX_STATE_FAILED
            return pb.Sandbox(sandbox_id=self.sandbox_id, state=state, state_reason=reason, lease=lease)

    def _sandbox(self) -> pb.Sandbox:
        idle_us = self.number("idle_us")
        spec = self.spec
        for secret in spec.secrets.values():
            secret.ClearField("sealed")
        return pb.Sandbox(
            sandbox_id=self.sandbox_id,
            spec=spec,
            state=pb.SandboxState.Value(f"SANDBOX_STATE_{self.state}"),
            state_reason=self.text("reason"),
            lease=self.lease(),
            node_id=self.node_id,
            driver=self.text("driver"),
            create_time=timestamp(self.number("created_us")),
            session_key=self.text("session"),
            slot=self.text("slot"),
            ports=self.ports,
            enforced=dict(self.access.enforced),
            idle_timeout=span(idle_us) if idle_us else None,
            user_id=self.text("user"),
            project=self.text("project"),
            cost=self._cost(),
            on_idle=pb.IDLE_ACTION_PAUSE if self.text("on_idle") == "pause" else pb.IDLE_ACTION_RELEASE,
            auto_resume=self.text("auto_resume") != "no",
            pause_memory=self._pause_memory(),
            pause_mode=_PAUSE_MODES.get(self.text("pause_mode"), pb.PAUSE_MODE_UNSPECIFIED),
        )

    def _pause_memory(self) -> pb.PauseMemory | None:
        text = self.text("pause_memory")
        if not text:
            return None
        before, after, note = text.split(" ", 2)
        return pb.PauseMemory(before_bytes=int(before), after_bytes=int(after), note=note)

    def _cost(self) -> float:
        """Return what it has cost up to now."""
        since = self.number("priced_us")
        micros = max(0.0, time.time() * 1e6 - since) if since else 0.0
        return (self.number("cost") + self.number("price") * micros / 1e6) / NANO


def record_from(pairs: Sequence[bytes]) -> RecordState:
    """Parse a record as scripts return it: names and values in turn."""
    return RecordState({pairs[i].decode(): pairs[i + 1] for i in range(0, len(pairs), 2)})


def timestamp(microseconds: int) -> Timestamp:
    """Convert a time of the store's clock to a message."""
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def span(microseconds: int) -> Duration:
    """Convert a duration to a message."""
    return Duration(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)

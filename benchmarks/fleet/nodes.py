"""A node that is simulated: a driver that answers as one with a runtime does, and starts nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing, SandboxLost, SandboxNotFound, SandboxStartFailed, SnapshotNotFound

TEMPLATE = "base"
CREATE_SECONDS = (0.21, 0.227, 0.257)
"""The fastest, the median and the 95th percentile of a create by the docker driver, from docs/speed.md."""
DELETE_SECONDS = 0.1
PRICE = 1_000
"""What a sandbox costs a second, in thousand-millionths."""


@dataclass(frozen=True)
class Behaviour:
    """How nodes answer: with the measured delays times `delay`; this share of creates fails."""

    delay: float = 1.0
    failures: float = 0.0


class SimulatedNode:
    """The part of the Driver interface that an allocator calls, over a table of sandboxes."""

    def __init__(self, node_id: str, behaviour: Behaviour, seed: int = 0) -> None:
        self.node_id = node_id
        self.sandboxes: dict[str, pb.RuntimeSandbox] = {}
        self.create_seconds: dict[str, float] = {}
        """How long each sandbox's create took here, so that a claim's own part is known."""
        self.created = 0
        self.failed = 0
        self._behaviour = behaviour
        self._random = random.Random(f"{node_id} {seed}")  # noqa: S311 - delays, not secrets
        self._ended: set[str] = set()
        self._subscribers: set[asyncio.Queue[pb.RuntimeSandbox]] = set()
        self.info = pb.GetInfoResponse(
            name="simulated",
            node_id=node_id,
            capabilities=pb.Capabilities(),
            templates=[pb.TemplateInfo(name=TEMPLATE, prepared=True, generation="1")],
        )

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what it is."""
        del request
        return self.info

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Report that the template is there."""
        yield pb.PrepareTemplateResponse(message=f"{request.template} is there", fraction=1, done=True)

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Add a sandbox after a delay, or fail.

        Raises:
            SandboxStartFailed: It is one of the failures that were asked for.
        """
        began = time.perf_counter()
        await asyncio.sleep(self._behaviour.delay * self._create_seconds())
        if self._random.random() < self._behaviour.failures:
            self.failed += 1
            raise SandboxStartFailed("the sandbox did not start: simulated", {"detail": "simulated"})
        made = pb.RuntimeSandbox(
            sandbox_id=request.sandbox_id,
            mesh_id=request.mesh_id,
            state=pb.RUNTIME_STATE_RUNNING,
            endpoint=f"tls://192.0.2.1:8571?pin={request.sandbox_id}",
            agent_token=request.sandbox_id,
            record_labels=dict(request.record_labels),
            spec=request.spec,
            nano_price=PRICE,
        )
        self.sandboxes[request.sandbox_id] = made
        self.created += 1
        self._publish(made)
        self.create_seconds[request.sandbox_id] = time.perf_counter() - began
        return pb.CreateSandboxResponse(sandbox=made)

    def _create_seconds(self) -> float:
        fastest, median, slow = CREATE_SECONDS
        share = self._random.random()
        if share < 0.5:
            return fastest + (median - fastest) * share * 2
        return median + (slow - median) * (share - 0.5) / 0.45

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Remove a sandbox after a delay."""
        await asyncio.sleep(self._behaviour.delay * DELETE_SECONDS)
        self.sandboxes.pop(request.sandbox_id, None)
        self.create_seconds.pop(request.sandbox_id, None)
        self._ended.discard(request.sandbox_id)
        return pb.DeleteSandboxResponse()

    @property
    def running(self) -> int:
        """How many of its sandboxes have not ended."""
        return len(self.sandboxes) - len(self._ended)

    def hold(self, sandbox: pb.RuntimeSandbox) -> None:
        """Have a sandbox from before, as a node whose mesh lost its store."""
        self.sandboxes[sandbox.sandbox_id] = sandbox

    def evict(self, sandbox_id: str) -> None:
        """End a sandbox as a node short of memory does."""
        sandbox = self.sandboxes[sandbox_id]
        self._ended.add(sandbox_id)
        sandbox.state, sandbox.end_detail = pb.RUNTIME_STATE_ENDED, "Evicted: the node was low on memory"
        self._publish(sandbox)

    def _publish(self, sandbox: pb.RuntimeSandbox) -> None:
        for queue in self._subscribers:
            queue.put_nowait(sandbox)

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Stream every sandbox, then each change."""
        del request
        queue: asyncio.Queue[pb.RuntimeSandbox] = asyncio.Queue()
        self._subscribers.add(queue)
        try:
            for sandbox in list(self.sandboxes.values()):
                yield pb.WatchSandboxesResponse(sandbox=sandbox)
            yield pb.WatchSandboxesResponse(synced=True)
            while True:
                yield pb.WatchSandboxesResponse(sandbox=await queue.get())
        finally:
            self._subscribers.discard(queue)

    async def inspect_sandbox(self, request: pb.InspectSandboxRequest) -> pb.InspectSandboxResponse:
        """Return a sandbox.

        Raises:
            SandboxNotFound: There is none of that id.
        """
        if request.sandbox_id not in self.sandboxes:
            raise SandboxNotFound(request.sandbox_id)
        return pb.InspectSandboxResponse(sandbox=self.sandboxes[request.sandbox_id])

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List every sandbox."""
        del request
        return pb.ListSandboxesResponse(sandboxes=list(self.sandboxes.values()))

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Keep the labels of a new holder.

        Raises:
            SandboxLost: It has ended.
        """
        sandbox = self._find(request.sandbox_id)
        if sandbox.state == pb.RUNTIME_STATE_ENDED:
            raise SandboxLost("the sandbox has ended", {"detail": sandbox.end_detail})
        sandbox.record_labels.update(request.record_labels)
        return pb.InstallTokenResponse()

    async def get_logs(self, request: pb.GetLogsRequest) -> pb.GetLogsResponse:
        """Return an empty log."""
        self._find(request.sandbox_id)
        return pb.GetLogsResponse()

    def _find(self, sandbox_id: str) -> pb.RuntimeSandbox:
        if sandbox_id not in self.sandboxes:
            raise SandboxNotFound(f"no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})
        return self.sandboxes[sandbox_id]

    async def pause_sandbox(self, request: pb.PauseSandboxRequest) -> pb.PauseSandboxResponse:
        """Refuse: it has no such capability."""
        raise _missing("pause", request.sandbox_id)

    async def resume_sandbox(self, request: pb.ResumeSandboxRequest) -> pb.ResumeSandboxResponse:
        """Refuse: it has no such capability."""
        raise _missing("pause", request.sandbox_id)

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Refuse: it has no such capability."""
        raise _missing("network", request.sandbox_id)

    async def snapshot_sandbox(self, request: pb.SnapshotSandboxRequest) -> pb.SnapshotSandboxResponse:
        """Refuse: it has no such capability."""
        raise _missing("snapshot", request.sandbox_id)

    async def list_snapshots(self, request: pb.ListSnapshotsRequest) -> pb.ListSnapshotsResponse:
        """List none."""
        del request
        return pb.ListSnapshotsResponse()

    async def delete_snapshot(self, request: pb.DeleteSnapshotRequest) -> pb.DeleteSnapshotResponse:
        """Refuse: there is none."""
        raise SnapshotNotFound(f"no snapshot {request.snapshot_id}", {"snapshot_id": request.snapshot_id})


def _missing(needs: str, sandbox_id: str) -> CapabilityMissing:
    return CapabilityMissing(f"{sandbox_id} is simulated and has no {needs}", {"needs": needs})

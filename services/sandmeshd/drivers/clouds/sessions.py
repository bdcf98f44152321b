"""The sandboxes of one driver: a session each, with the record that its agent keeps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.node.records import SpecRecord


@dataclass
class RentedSession:
    """A session that is rented, and the sandbox that it is."""

    resource: str
    """What the vendor has it in, by its name there; empty until that is made."""
    session_id: str
    """The id by which the vendor's gateway finds its instance; agent's token and record are bound to it."""
    record: SpecRecord
    begun: float = field(default_factory=time.time)
    """When it was made, in seconds since 1970."""
    is_unwanted: bool = False
    """Whether it was deleted while it started."""
    is_read: bool = True
    """Whether its record is known; one that was found is read from its agent."""

    @property
    def sandbox(self) -> pb.RuntimeSandbox:
        """The sandbox."""
        return self.record.sandbox

    @property
    def has_ended(self) -> bool:
        """Whether the sandbox ended."""
        return self.sandbox.state == pb.RUNTIME_STATE_ENDED

    def end(self, detail: str) -> None:
        """Note that the sandbox ended, and how."""
        self.sandbox.state = pb.RUNTIME_STATE_ENDED
        self.sandbox.end_detail = detail


class RentedSessions:
    """The sessions by sandbox."""

    def __init__(self) -> None:
        self._sessions: dict[str, RentedSession] = {}

    def get(self, sandbox_id: str) -> RentedSession | None:
        """Return a sandbox's session, None if it has none."""
        return self._sessions.get(sandbox_id)

    def add(self, session: RentedSession) -> None:
        """Add a session, in place of its sandbox's former one."""
        self._sessions[session.sandbox.sandbox_id] = session

    def remove(self, session: RentedSession) -> None:
        """Forget a session."""
        if self._sessions.get(session.sandbox.sandbox_id) is session:
            del self._sessions[session.sandbox.sandbox_id]

    def find(self, sandbox_id: str) -> pb.RuntimeSandbox | None:
        """Return a sandbox as it is now, None if nothing of it is left."""
        session = self._sessions.get(sandbox_id)
        if session is None:
            return None
        sandbox = pb.RuntimeSandbox()
        sandbox.CopyFrom(session.sandbox)
        return sandbox

    def all(self) -> list[pb.RuntimeSandbox]:
        """Return every sandbox that has left anything, by id."""
        return [sandbox for name in sorted(self._sessions) if (sandbox := self.find(name)) is not None]

"""Carries calls with input into a sandbox, as a gateway does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.conformance.inside import PATIENCE_SECONDS

_PIECE = 256 * 1024


@dataclass(frozen=True)
class Carried:
    """A call that ended: what it wrote, and its result."""

    data: bytes
    result: call_pb2.Result

    @property
    def facts(self) -> dict[str, Any]:
        """The structured result."""
        found: dict[str, Any] = json.loads(self.result.structured_json or b"{}")
        return found


async def carry(
    sandbox: pb.RuntimeSandbox, tool: str, arguments: Mapping[str, object], data: bytes | None = None
) -> Carried:
    """Run a call, with `data` as its input, and acknowledge what comes.

    Raises:
        SandmeshError: The agent refused it.
    """
    async with open_link(sandbox, PATIENCE_SECONDS) as link:
        call = AgentCall(link)
        call.start(sandbox.sandbox_id, tool, arguments, takes_input=data is not None)
        view = memoryview(data or b"")
        pieces = [bytes(view[at : at + _PIECE]) for at in range(0, len(view), _PIECE)]
        for number, piece in enumerate(pieces, 1):
            call.send(input=call_pb2.Input(sequence=number, data=piece))
            await call.drain()
        if data is not None:
            call.send(input=call_pb2.Input(sequence=len(pieces) + 1, end=True))
        events = await call.wait()
    written = b"".join(e.output.data for e in events if e.output.stream == call_pb2.STREAM_STDOUT)
    return Carried(written, events[-1].result)

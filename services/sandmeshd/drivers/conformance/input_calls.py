"""Carries calls with input into a sandbox, as a gateway does."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import from_detail
from sandmeshd.agentlink.control_link import AgentLink, open_link
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
    start = call_pb2.CallStart(sandbox_id=sandbox.sandbox_id, tool=tool, arguments=json.dumps(arguments).encode())
    start.call_id, start.takes_input = secrets.token_hex(8), data is not None
    async with open_link(sandbox, PATIENCE_SECONDS) as link:
        await _send(link, call_pb2.CallFrame(call_id=start.call_id, start=start))
        view = memoryview(data or b"")
        pieces = [bytes(view[at : at + _PIECE]) for at in range(0, len(view), _PIECE)]
        for number, piece in enumerate(pieces, 1):
            item = call_pb2.Input(sequence=number, data=piece)
            await _send(link, call_pb2.CallFrame(call_id=start.call_id, input=item))
        if data is not None:
            item = call_pb2.Input(sequence=len(pieces) + 1, end=True)
            await _send(link, call_pb2.CallFrame(call_id=start.call_id, input=item))
        return await _collect(link, start.call_id)


async def _send(link: AgentLink, frame: call_pb2.CallFrame) -> None:
    await link.send(agent_pb2.ToAgent(channel=1, call=agent_pb2.Fenced(frame=frame)))


async def _collect(link: AgentLink, call_id: str) -> Carried:
    written = bytearray()
    while True:
        batch = call_pb2.CallEventBatch.FromString((await link.receive()).batch)
        if batch.HasField("error"):
            raise from_detail(batch.error)
        for event in batch.events:
            if event.output.stream == call_pb2.STREAM_STDOUT:
                written += event.output.data
            if event.HasField("result"):
                return Carried(bytes(written), event.result)
        if batch.events:
            acknowledge = call_pb2.Acknowledge(sequence=batch.events[-1].sequence)
            await _send(link, call_pb2.CallFrame(call_id=call_id, acknowledge=acknowledge))

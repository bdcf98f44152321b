"""A call over a link: started or attached to, its events acknowledged as they come."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.errors import from_detail
from sandmeshd.agentlink.link import AgentLink, LinkChannel


class AgentCall:
    """One call on a channel of a link."""

    def __init__(self, link: AgentLink, call_id: str = "") -> None:
        self.call_id = call_id or secrets.token_hex(12)
        self.result: call_pb2.Result | None = None
        self.acknowledged_input = 0
        """The sequence up to which the sandbox has the input."""
        self._link = link
        self._channel = LinkChannel(link)

    def start(self, sandbox_id: str, tool: str, arguments: Mapping[str, object], **envelope: Any) -> None:
        """Start it; `envelope` has further fields of CallStart."""
        data = json.dumps(arguments).encode()
        self.send(
            start=call_pb2.CallStart(sandbox_id=sandbox_id, call_id=self.call_id, tool=tool, arguments=data, **envelope)
        )

    def send(self, **body: Message) -> None:
        """Send one frame, by the name of its field."""
        frame = call_pb2.CallFrame(call_id=self.call_id)
        for name, message in body.items():
            getattr(frame, name).CopyFrom(message)
        self._channel.send(agent_pb2.ToAgent(call=agent_pb2.Fenced(frame=frame)))

    async def drain(self) -> None:
        """Wait until the agent took most of what was sent."""
        await self._link.drain()

    async def receive(self) -> Sequence[call_pb2.CallEvent]:
        """Return the next events, acknowledged; the last of a call is its result.

        Raises:
            SandmeshError: The agent refused the call, or the link ended.
        """
        batch = call_pb2.CallEventBatch.FromString((await self._channel.receive()).batch)
        if batch.HasField("error"):
            raise from_detail(batch.error)
        self.acknowledged_input = max(self.acknowledged_input, batch.input_ack_sequence)
        if batch.events:
            last = batch.events[-1]
            if last.HasField("result"):
                self.result = last.result
            self.send(acknowledge=call_pb2.Acknowledge(sequence=last.sequence))
        return batch.events

    async def wait(self) -> list[call_pb2.CallEvent]:
        """Return all further events, to the result.

        Raises:
            SandmeshError: The agent refused the call, or the link ended.
        """
        events: list[call_pb2.CallEvent] = []
        while self.result is None:
            events += await self.receive()
        return events

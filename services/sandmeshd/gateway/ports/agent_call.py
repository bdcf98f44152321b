"""One call to an agent and its result, for what the gateway itself wants to know."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any, cast

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import SandmeshError, from_detail
from sandmeshd.gateway.calls.relay import Relay
from sandmeshd.gateway.routes.routes import OwnedRoutes


class AgentRefused(Exception):
    """The agent's result says no: `number` is as in errno.h."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


def read_batch(response: bytes) -> pb.CallEventBatch:
    """Read the batch of a serialized response."""
    return pb.RunCallResponse.FromString(response).batch


def start_frame(sandbox_id: str, tool: str, arguments: dict[str, Any], **envelope: Any) -> pb.CallFrame:
    """Return the frame that starts a call of the gateway's own."""
    call_id = f"gateway-{secrets.token_hex(12)}"
    data = json.dumps(arguments).encode()
    start = pb.CallStart(sandbox_id=sandbox_id, call_id=call_id, tool=tool, arguments=data, **envelope)
    return pb.CallFrame(call_id=call_id, start=start)


def refusal(result: pb.Result) -> AgentRefused:
    """Read a result that says no."""
    number = _read_facts(result).get("errno")
    return AgentRefused(result.message, number if isinstance(number, int) else 0)


def _read_facts(result: pb.Result) -> dict[str, Any]:
    """Return a structured result; it comes out of a sandbox, so one that is malformed counts as none."""
    try:
        facts: object = json.loads(result.structured_json or b"{}")
    except (ValueError, RecursionError):
        facts = None
    return cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}


class _ShortCaller:
    """The caller of one short call."""

    def __init__(self) -> None:
        self.result: asyncio.Future[pb.Result] = asyncio.get_running_loop().create_future()

    def deliver(self, call: Relay, response: bytes, last_sequence: int) -> None:
        batch = read_batch(response)
        if batch.HasField("error"):
            self._fail(from_detail(batch.error))
        for event in batch.events:
            if event.HasField("result") and not self.result.done():
                self.result.set_result(event.result)
        call.acknowledge(last_sequence)

    def ended(self, call: Relay, error: SandmeshError | None) -> None:
        if error is not None:
            self._fail(error)

    def _fail(self, error: SandmeshError) -> None:
        if not self.result.done():
            self.result.set_exception(error)


async def ask(routes: OwnedRoutes, seconds: float, frame: pb.CallFrame) -> dict[str, Any]:
    """Run a short call and give its structured result.

    Raises:
        SandmeshError: The sandbox is gone, or the lease is another's.
        Refused: The agent's result says no.
    """
    frame.start.timeout.FromNanoseconds(int(seconds * 1e9))
    answer = _ShortCaller()
    relay = Relay(routes, answer, frame.call_id)
    relay.open(frame, seconds)
    try:
        result = await answer.result
    finally:
        relay.detach()
    if result.is_error:
        raise refusal(result)
    return _read_facts(result)

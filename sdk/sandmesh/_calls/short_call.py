"""Calls with few bytes each way, on the stream that all calls share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from sandmesh._calls.call import Call, Order
from sandmesh._calls.multiplexer import CallMux
from sandmesh._calls.runner import start_deadline
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import ProtocolMismatch, SandmeshError

SMALL = 128 * 1024


def read_facts(data: bytes) -> dict[str, Any]:
    """Read an object of JSON that an agent sent of a file or a transfer.

    Raises:
        ProtocolMismatch: It is not one.
    """
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProtocolMismatch("the sandbox's agent sent what is not an object of JSON")
    return cast("dict[str, Any]", found)


class Quick:
    """What a call gave: its bytes, what it said of itself before them, and its result."""

    def __init__(self, mux: CallMux) -> None:
        self.done: asyncio.Future[pb.Result] = asyncio.get_running_loop().create_future()
        self.data = bytearray()
        self.facts: dict[str, Any] = {}
        self._mux = mux

    def on_events(self, call: Call, events: Sequence[pb.CallEvent], size: int) -> None:
        """Keep what came and acknowledge it."""
        self._mux.acknowledge(call, call.last, size)
        for event in events:
            if event.HasField("result") and not self.done.done():
                self.done.set_result(event.result)
            elif event.output.stream == pb.STREAM_STDERR:
                self._read_facts(event.output.data)
            elif event.HasField("output"):
                self.data += event.output.data

    def _read_facts(self, data: bytes) -> None:
        try:
            self.facts = read_facts(data)
        except ProtocolMismatch as error:
            # Raised here it would break every call of the stream.
            self.on_error(error)

    def on_input_taken(self, call: Call) -> None:
        """All input is on its way already."""

    def on_error(self, error: SandmeshError) -> None:
        """End with an error."""
        if not self.done.done():
            self.done.set_exception(error)


async def run_quick(mux: CallMux, order: Order, data: bytes | None = None) -> Quick:
    """Run a call, with `data` as its whole input, to its result.

    Raises:
        SandmeshError: The mesh refused it or could not go on with it.
        DeadlineExceeded: There was no result in its time, nor an answer a little later.
    """
    quick = Quick(mux)
    call = mux.begin(replace(order, takes_input=data is not None), quick)
    if data is not None:
        mux.send_input(call, pb.Input(sequence=1, data=data, end=True))
    late = start_deadline(mux, order, quick)
    try:
        await quick.done
    finally:
        late.cancel()
        mux.abandon(call)
    return quick

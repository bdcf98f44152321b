"""Tools that are plain functions, run in worker threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import Answer
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler
from sandmeshd.agent.userland.python import content_blocks


def in_thread(function: Callable[[Any], Answer]) -> Handler:
    """Return a handler that runs a function of a declaration's instance. A stopped call does not wait for it."""

    async def run(declared: Any, call: RunningCall) -> Outcome:
        call.started()
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = loop.create_future()
        work = loop.run_in_executor(None, function, declared)
        with call.stopping(lambda: None if stopped.done() else stopped.set_result(None)):
            awaited: set[asyncio.Future[Any]] = {work, stopped}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return await _write(work.result(), call)
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        message = "The call was stopped; what it had begun may still complete."
        await call.text(message + "\n")
        return Outcome(is_error=True, reason=call.stop_reason or pb.END_REASON_CANCELLED, message=message)

    return run


async def _write(answer: Answer, call: RunningCall) -> Outcome:
    for block in answer.content:
        if block["type"] == "text":
            for piece in content_blocks.texts(block["text"], block["description"], block["annotations"]):
                await call.content(piece)
        else:
            await call.content(content_blocks.encode(block))
    structured = b"" if answer.structured is None else json.dumps(answer.structured).encode()
    return Outcome(structured=structured)

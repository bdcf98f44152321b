"""The browser tools: each is carried out by the process that drives the browser, started at the first call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, cast

from sandmesh._tools import TOOLS, Tool
from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Call, Outcome
from sandmeshd.agent.calls.toolbox import Handler, Service
from sandmeshd.agent.files.arguments import Arguments, read_arguments
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import unless_stopped
from sandmeshd.agent.processes.spawner import Processes
from sandmeshd.agent.tools.browser.process import BrowserContext, BrowserProcess, start_browser_process
from sandmeshd.agent.userland import content_blocks, kernel_protocol

GROUP: Final = "browser"
_MAX_STRUCTURED: Final = 1 << 20
_STOPPED: Final = "The call was stopped; what it had begun in the browser may still complete."


@dataclass(frozen=True)
class DebuggingAddress(Arguments):
    """Starts the browser where none runs, and returns the port and path of its DevTools protocol."""

    tool: ClassVar[str] = "browser.debugging_address"


class Browser:
    """The browser of a sandbox."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._process: asyncio.Task[BrowserProcess] | None = None

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each browser tool."""
        return {cls: partial(self._run, name) for name, cls in TOOLS.items() if cls.group == GROUP}

    def services(self) -> Mapping[str, Service]:
        """Return what serves the SDK."""
        run = partial(self._run, "debugging_address")
        return {DebuggingAddress.tool: Service(partial(read_arguments, DebuggingAddress), run)}

    async def close(self) -> None:
        """End the process and the browser."""
        if self._process is not None:
            self._process.cancel()
            await asyncio.wait([self._process])
            if not self._process.cancelled() and self._process.exception() is None:
                self._process.result().end("The sandbox ends.")

    async def _run(self, tool: str, declared: Tool | DebuggingAddress, call: Call) -> Outcome:
        call.started()
        try:
            reply = await unless_stopped(call, self._request(tool, vars(declared)))
        except CallStopped:
            await call.text(_STOPPED)
            return Outcome(True, call.stop_reason or pb.END_REASON_CANCELLED, message=_STOPPED)
        if "error" in reply:
            raise ToolFailure(str(reply["error"]))
        return await _write(reply, call)

    async def _request(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        process = await self._running()
        return await process.request(tool, arguments)

    async def _running(self) -> BrowserProcess:
        """Return the process, started where none runs."""
        task = self._process
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().alive)):
            task = self._process = asyncio.create_task(start_browser_process(self._context))
        return await asyncio.shield(task)


async def _write(reply: Mapping[str, Any], call: Call) -> Outcome:
    blocks = reply.get("blocks")
    for block in cast("list[object]", blocks) if isinstance(blocks, list) else []:
        await _write_block(cast("dict[str, Any]", block) if isinstance(block, dict) else {}, call)
    structured = json.dumps(reply["structured"]).encode() if reply.get("structured") else b""
    return Outcome(structured=structured if len(structured) <= _MAX_STRUCTURED else b"")


async def _write_block(block: Mapping[str, Any], call: Call) -> None:
    if block.get("type") == "image":
        kind, data = str(block.get("mimeType")), str(block.get("data"))
        image = {"type": "image", "data": data, "mimeType": kind, "annotations": None, "description": "screenshot"}
        encoded = content_blocks.encode(image)
        if len(encoded) <= kernel_protocol.MAX_PAYLOAD:
            await call.content(encoded)
        return
    await call.text(str(block.get("text", "")), "stdout")


def make_browser(processes: Processes, config: agent_pb2.AgentConfig) -> Browser:
    """Create the browser of a sandbox; nothing is started."""
    return Browser(BrowserContext(processes, config.python, dict(config.environment), config.workspace))

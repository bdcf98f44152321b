"""The browser tools: each is carried out by the process that drives the browser, started at the first call."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from sandmesh._tools import TOOLS, Tool
from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler, Service
from sandmeshd.agent.files.changes import make_directory
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.requests import Mkdir, Pack, Unpack
from sandmeshd.agent.files.service import FileService
from sandmeshd.agent.files.streams import unless_stopped
from sandmeshd.agent.processes.spawner import ProcessSpawner
from sandmeshd.agent.tools.browser.process import BrowserContext, BrowserProcess, start_browser_process
from sandmeshd.agent.tools.recorder.trace import Trace, TracedCall
from sandmeshd.agent.tools.viewers import PictureMessages, Viewers, connect_socket
from sandmeshd.agent.userland.python import content_blocks, kernel_protocol

SOCKET: Final = "/tmp/.browser/view"  # noqa: S108 - inside a sandbox
HELD: Final = (
    "A person has taken over the browser: its page waits for them. browser_snapshot and browser_take_screenshot still "
    "work. Call browser_wait_for, then try again."
)
HARMLESS: Final = frozenset(
    f"browser_{name}"
    for name in (
        *("snapshot", "take_screenshot", "pdf_save", "wait_for"),
        *("console_messages", "network_requests", "tab_list", "storage_state"),
    )
)
"""The tools that change nothing, which work while a person has the browser."""


class BrowserViewers:
    """The viewers of one browser; `open_view` starts it and has it listen at a socket."""

    def __init__(self, open_view: Callable[[str], Awaitable[None]], settled: Callable[[], Awaitable[None]]) -> None:
        self._open = open_view
        self._viewers = Viewers("browser", HELD, settled)
        self.act = self._viewers.act

    def services(self) -> Mapping[str, Service]:
        """Return what serves the gateway."""
        return self._viewers.services("browser.control")

    async def dial(self, viewer: str, *, readonly: bool) -> socket.socket:
        """Connect a viewer to the browser, started where it does not run. Its input passes while it is in control.

        Raises:
            ToolFailure: The browser does not start.
        """
        await self._open(SOCKET)
        server = await connect_socket(SOCKET)
        messages = PictureMessages(lambda: not readonly and self._viewers.has(viewer))
        return self._viewers.connect(server, messages, None if readonly else viewer)


PACK: Final = "browser.profile.pack"
UNPACK: Final = "browser.profile.unpack"
DIRECTORY: Final = ".cache/sandmesh-browser"
"""Below the home."""


def profile_services(home: str, most: int, settle: Callable[[], Awaitable[None]]) -> Mapping[str, Service]:
    """Return what serves the driver; `settle` closes the browser, so that its files are whole."""

    async def pack(_: Any, call: RunningCall) -> Outcome:
        await settle()
        with Workspace(home) as root:
            make_directory(root, Mkdir(DIRECTORY))
            return await _run(root, most, Pack.tool, {"path": DIRECTORY, "any_modes": True}, call)

    async def unpack(_: Any, call: RunningCall) -> Outcome:
        with Workspace(home) as root:
            return await _run(root, most, Unpack.tool, {"path": DIRECTORY}, call)

    return {PACK: Service(_nothing, pack), UNPACK: Service(_nothing, unpack)}


async def _run(root: Workspace, most: int, tool: str, arguments: Mapping[str, object], call: RunningCall) -> Outcome:
    service = FileService(root, most).services()[tool]
    return await service.run(service.read(json.dumps(arguments).encode()), call)


def _nothing(_: bytes) -> None:
    """Read no arguments: there are none."""


GROUP: Final = "browser"
_MAX_STRUCTURED: Final = 1 << 20
_CAST: Final = "screencast"
_PICTURE: Final = "trace_picture"
_SETTLE: Final = "settle_profile"
_SETTLE_SECONDS: Final = 20.0
_WARM_UP: Final = "warm_up"
_WARM_AFTER_SECONDS: Final = 0.5
"""So that a pool's refill does not compete with the first calls after a claim."""
_STOPPED: Final = "The call was stopped; what it had begun in the browser may still complete."


class SandboxBrowser:
    """The browser of a sandbox."""

    def __init__(self, context: BrowserContext) -> None:
        self._context = context
        self._cast: dict[str, Any] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._resuming: asyncio.Task[None] | None = None
        self.trace: Trace | None = None
        """Where calls are added while a recording is under way."""
        self._process: asyncio.Task[BrowserProcess] | None = None
        self.view = BrowserViewers(self._open_view, self._cancelled)

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each browser tool."""
        return {cls: partial(self._traced, name) for name, cls in TOOLS.items() if cls.group == GROUP}

    async def debugging_port(self) -> int:
        """Return the port of the sandbox's loopback at which the browser speaks the DevTools protocol; start it.

        Raises:
            ToolFailure: It does not start.
        """
        reply = await self._request("debugging_address", {})
        found: object = reply.get("structured")
        port = cast("dict[str, object]", found).get("port") if isinstance(found, dict) else None
        if not isinstance(port, int) or not 0 < port < 1 << 16:
            raise ToolFailure(str(reply.get("error") or "The browser named no port."))
        return port

    def services(self) -> Mapping[str, Service]:
        """Return what serves the driver."""
        return profile_services(self._context.home, self._context.most, self._settle)

    async def _settle(self) -> None:
        """Close the browser, its profile kept; what fails leaves the profile as it is."""
        if self._alive:
            with suppress(ToolFailure, TimeoutError):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    await self._request(_SETTLE, {})

    def warm(self) -> None:
        """Start the browser before anybody needs it. A failure will show at the first call."""
        self._warming = asyncio.create_task(self._warm())

    async def _warm(self) -> None:
        await asyncio.sleep(_WARM_AFTER_SECONDS)
        with suppress(ToolFailure):
            await self._request(_WARM_UP, {})

    async def _open_view(self, path: str) -> None:
        reply = await self._request("open_view", {"path": path})
        if "error" in reply:
            raise ToolFailure(str(reply["error"]))

    async def close(self) -> None:
        """End the process and the browser."""
        if self._warming is not None:
            self._warming.cancel()
        if self._process is not None:
            self._process.cancel()
            await asyncio.wait([self._process])
            if not self._process.cancelled() and self._process.exception() is None:
                self._process.result().end("The sandbox ends.")

    async def _traced(self, tool: str, declared: Tool, call: RunningCall) -> Outcome:
        if self.trace is None:
            return await self._run(tool, declared, call, TracedCall())
        async with self.trace.step(tool, vars(declared), self._picture) as step:
            return await self._run(tool, declared, call, step)

    async def _picture(self, path: str) -> None:
        """Write a picture of the page to a file of the workspace; nothing where no browser runs."""
        task = self._process
        if task is not None and task.done() and self._alive:
            await task.result().request(_PICTURE, {"path": path})

    async def cast(self, path: str, fps: int) -> None:
        """Stream images of the page to a pipe in the sandbox, also after the browser has ended, until `end_cast`.

        Raises:
            ToolFailure: The browser does not start.
        """
        self._cast = {"path": path, "fps": fps}
        reply = await self._request(_CAST, self._cast)
        if "error" in reply:
            self._cast = None
            raise ToolFailure(str(reply["error"]))

    async def end_cast(self) -> None:
        """End the stream."""
        self._cast = None
        if self._alive:
            with suppress(ToolFailure):
                await self._request(_CAST, {"path": ""})

    @property
    def _alive(self) -> bool:
        """Whether the process runs, or starts."""
        task = self._process
        if task is None or not task.done():
            return task is not None
        return not (task.cancelled() or task.exception()) and task.result().alive

    async def _start(self) -> BrowserProcess:
        process = await start_browser_process(self._context)
        if self._cast is not None:
            # What streamed has ended with the one before.
            self._resuming = asyncio.create_task(_resume(process, self._cast))
        return process

    async def _run(self, tool: str, declared: Tool, call: RunningCall, step: TracedCall) -> Outcome:
        call.started()
        work = unless_stopped(call, self._request(tool, vars(declared)))
        try:
            reply = await (work if tool in HARMLESS else self.view.act(work))
        except CallStopped:
            await call.text(_STOPPED)
            step.failed, step.result = True, _STOPPED
            return Outcome(True, call.stop_reason or pb.END_REASON_CANCELLED, message=_STOPPED)
        if "error" in reply:
            raise ToolFailure(str(reply["error"]))
        step.result = "\n".join(str(block.get("text", "")) for block in _blocks(reply))
        return await _write(reply, call)

    async def _cancelled(self) -> None:
        """Wait until the requests that were cancelled do nothing more."""
        task = self._process
        if task is not None and task.done() and self._alive:
            await task.result().cancelled()

    async def _request(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        process = await self._running()
        return await process.request(tool, arguments)

    async def _running(self) -> BrowserProcess:
        """Return the process, started where none runs."""
        task = self._process
        if task is None or not self._alive:
            task = self._process = asyncio.create_task(self._start())
        return await asyncio.shield(task)


async def _resume(process: BrowserProcess, cast: Mapping[str, Any]) -> None:
    with suppress(ToolFailure):
        await process.request(_CAST, cast)


async def _write(reply: Mapping[str, Any], call: RunningCall) -> Outcome:
    for block in _blocks(reply):
        await _write_block(block, call)
    structured = json.dumps(reply["structured"]).encode() if reply.get("structured") else b""
    return Outcome(structured=structured if len(structured) <= _MAX_STRUCTURED else b"")


def _blocks(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks = reply.get("blocks")
    found = cast("list[object]", blocks) if isinstance(blocks, list) else []
    return [cast("dict[str, Any]", block) for block in found if isinstance(block, dict)]


async def _write_block(block: Mapping[str, Any], call: RunningCall) -> None:
    if block.get("type") == "image":
        kind, data = str(block.get("mimeType")), str(block.get("data"))
        image = {"type": "image", "data": data, "mimeType": kind, "annotations": None, "description": "screenshot"}
        encoded = content_blocks.encode(image)
        if len(encoded) <= kernel_protocol.MAX_PAYLOAD:
            await call.content(encoded)
        return
    await call.text(str(block.get("text", "")), "stdout")


def make_browser(processes: ProcessSpawner, config: agent_pb2.AgentConfig) -> SandboxBrowser:
    """Create the browser of a sandbox; nothing is started."""
    environment, most = dict(config.environment), config.max_file_bytes
    return SandboxBrowser(BrowserContext(processes, config.python, environment, config.workspace, config.home, most))

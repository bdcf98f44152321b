"""One MCP server of the sandbox: its state, its process, its tools, its calls."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.files.failures import CallStopped
from sandmeshd.agent.files.streams import unless_stopped
from sandmeshd.agent.mcp.manager.client_process import (
    CallMessages,
    ClientContext,
    ClientProcess,
    open_pipes,
    parse_listing,
)
from sandmeshd.agent.mcp.manager.clients import INTERNAL_ERROR, McpClients, refusal
from sandmeshd.agent.mcp.manager.stderr_tail import StderrTail, plain
from sandmeshd.agent.processes.spawner import ProcessEnd, ProcessGroup
from sandmeshd.agent.python.kernels import is_block
from sandmeshd.contracts.mcp_config import ServerConfig

IDLE: Final = "IDLE"
STARTING: Final = "STARTING"
READY: Final = "READY"
FAILED: Final = "FAILED"
_END_SECONDS: Final = 2.0
"""How long a program may take to end by itself once its input is closed."""
_REPORT_SECONDS: Final = 1.0
"""How long the MCP client process and the server may take to report an end, once the other did."""
_LAST_LINES: Final = 5


@dataclass
class ServerRun:
    """One start of a server, until it ended."""

    client: ClientProcess
    opened: asyncio.Future[None]
    reason: asyncio.Future[str]
    """The reported reason of its end; with `fault` it explains more than how the process ended."""
    fault: bool = False
    session: int = 0
    process: ProcessGroup | None = None
    stderr: StderrTail | None = None
    over: str = ""
    """Why it is over."""


@dataclass
class ServerStatus:
    """The state of a server and what it offers."""

    state: str = IDLE
    error: str = ""
    problems: list[str] = field(default_factory=list[str])
    tools: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    starts: int = 0
    pid: int | None = None


class Server:
    """A server, which starts when it is needed, and again after it ended."""

    def __init__(
        self,
        config: ServerConfig,
        context: ClientContext,
        client: Callable[[], Awaitable[ClientProcess]],
        changed: Callable[[Server], None],
        clients: McpClients,
    ) -> None:
        self.config = config
        self.status = ServerStatus()
        self.clients = clients
        self._context = context
        self._client = client
        self._changed = changed
        self._run: ServerRun | None = None
        self._starting: asyncio.Task[ServerRun] | None = None
        self._stderr: StderrTail | None = None
        self._removed = False
        self._ending: set[asyncio.Task[None]] = set()

    def describe(self) -> dict[str, Any]:
        """Return its state as plain JSON."""
        status = self.status
        return {
            "name": self.config.name,
            "state": status.state,
            "transport": self.config.transport,
            "tools": list(status.tools),
            "error": status.error,
            "problems": status.problems,
            "log": self._stderr.lines() if self._stderr is not None else [],
            "starts": status.starts,
            "pid": status.pid,
        }

    # Starting.

    async def ready(self) -> ServerRun:
        """Start it unless it runs; concurrent callers wait for the same start.

        Raises:
            ToolFailure: It does not start; the message says why.
        """
        if self._removed:
            raise ToolFailure(f"MCP server {self.config.name!r} was removed.")
        if self._run is not None:
            return self._run
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    def _started(self, task: asyncio.Task[ServerRun]) -> None:
        self._starting = None
        if not task.cancelled():
            # Mark it as retrieved: it may not have been awaited.
            task.exception()

    async def _start(self) -> ServerRun:
        self.status.state, self.status.error = STARTING, ""
        self.status.starts += 1
        run: ServerRun | None = None
        try:
            _check_config(self.config)
            async with asyncio.timeout(self.config.startup_timeout):
                client = await self._client()
                loop = asyncio.get_running_loop()
                run = ServerRun(client, loop.create_future(), loop.create_future())
                await self._open(run)
                await run.opened
                _check(run)
        except (TimeoutError, ToolFailure) as error:
            why = str(error) or f"it was not ready within {self.config.startup_timeout:g} s"
            await self._fail(run, why)
            raise ToolFailure(self._explain("did not start")) from None
        except BaseException:
            await self._fail(run, "its start was given up")
            raise
        self.status.state, self._run = READY, run
        return run

    async def _fail(self, run: ServerRun | None, why: str) -> None:
        self.status.state, self.status.error = FAILED, why.rstrip(".")
        if run is not None:
            await self._stop(run)

    async def _open(self, run: ServerRun) -> None:
        config = self.config
        request: dict[str, Any] = {"transport": config.transport, "url": config.url, "headers": dict(config.headers)}
        request["capabilities"] = self.clients.capabilities
        listener = _Listener(self, run)
        if config.transport != "stdio":
            run.session = run.client.open(listener, request, None)
            return
        inside, outside = open_pipes()
        run.stderr = self._stderr = StderrTail()
        try:
            env = {**self._context.environment, **config.env}
            cwd = os.path.join(self._context.workspace, config.cwd)  # noqa: PTH118 - pathlib would normalize it
            fds = [*inside, run.stderr.writer]
            run.process = self._context.processes.spawn(config.command, fds, cwd=cwd, env=env, whole=True)
            run.session = run.client.open(listener, request, outside)
        finally:
            run.stderr.close_writer()
            for fd in (*inside, *outside):
                os.close(fd)
        run.process.ended.add_done_callback(lambda _: self.end_soon(run))
        self.status.pid = await run.process.started

    # What the MCP client process reports.

    def listed(self, run: ServerRun, body: bytes) -> None:
        """Replace the tools."""
        tools, self.status.problems = parse_listing(body)
        self.status.tools = {tool["name"]: tool for tool in tools}
        if not run.opened.done():
            run.opened.set_result(None)
        self._changed(self)

    def end_soon(self, run: ServerRun) -> None:
        """Handle the end of a run, once its reason is known."""
        task = asyncio.get_running_loop().create_task(self._over(run))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _over(self, run: ServerRun) -> None:
        """Wait until the MCP client process and the server report the end of a run; either may have the reason."""
        ended = run.process.ended if run.process is not None else None
        both: list[asyncio.Future[Any]] = [run.reason] if ended is None else [run.reason, ended]
        await asyncio.wait(both, timeout=_REPORT_SECONDS)
        why = run.reason.result() if run.reason.done() else "its connection ended"
        if ended is not None and ended.done() and not run.fault:
            why = _describe_end(ended.result())
        self.ended(run, why)

    def ended(self, run: ServerRun, why: str) -> None:
        """Handle the end of a run."""
        run.over = run.over or why
        if not run.opened.done():
            run.opened.set_exception(ToolFailure(why))
            run.opened.exception()
        elif run is self._run:
            self._run = None
            self.status.state, self.status.error, self.status.pid = IDLE, why.rstrip("."), None
            self._cut(run)

    # Ending.

    def _cut(self, run: ServerRun) -> None:
        """Detach a run that is over, and end what is left of it."""
        self.clients.cancel_all(run.session)
        run.client.close(run.session)
        if run.process is not None:
            run.process.kill()
        if run.stderr is not None:
            asyncio.get_running_loop().call_soon(run.stderr.close)

    async def _stop(self, run: ServerRun) -> None:
        """End a run: its input is closed, and what does not end then is killed."""
        self.clients.cancel_all(run.session)
        run.client.close(run.session)
        self.status.pid = None
        if run.process is not None and not run.process.ended.done():
            await asyncio.wait([run.process.ended], timeout=_END_SECONDS if run is self._run else 0)
            run.process.kill()
            await asyncio.wait([run.process.ended], timeout=_END_SECONDS)
        if run.stderr is not None:
            run.stderr.close()

    async def remove(self) -> None:
        """End it for good."""
        self._removed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        run = self._run
        if run is not None:
            await self._stop(run)
            self._run = None
        self.status = ServerStatus()

    # Calling.

    async def call(self, tool: str, arguments: bytes, call: RunningCall) -> Outcome:
        """Call one of its tools."""
        call.started()
        try:
            run = await unless_stopped(call, self.ready())
            if tool not in self.status.tools:
                known = ", ".join(self.status.tools) or "none"
                raise ToolFailure(f"MCP server {self.config.name!r} has no tool {tool!r} now; it has {known}.")
            messages = run.client.call(run.session, tool, arguments)
            try:
                return await unless_stopped(call, self._follow(run, messages, call))
            except CallStopped:
                run.client.cancel(messages)
                raise
            finally:
                run.client.forget(messages)
        except CallStopped:
            return Outcome(is_error=True, reason=call.stop_reason or pb.END_REASON_CANCELLED, message=_STOPPED)

    async def _follow(self, run: ServerRun, messages: CallMessages, call: RunningCall) -> Outcome:
        while True:
            head, body = await messages.next()
            if "progress" in head:
                call.progress(*_progress(head["progress"]))
            elif "block" in head:
                if is_block(body):
                    await call.content(body)
                if head.get("waits") is True:
                    run.client.acknowledge(messages)
            elif "end" in head:
                return await self._result(run, head, body, call)

    async def _result(self, run: ServerRun, head: Mapping[str, Any], body: bytes, call: RunningCall) -> Outcome:
        message = plain(str(head.get("message", "")))
        if head.get("lost") is True:
            if run.client.alive:
                await self._over(run)
            raise ToolFailure(self._explain("ended in the middle of the call"))
        if head.get("is_error") is True and call.log.last <= 1:
            await call.text(message)
        return Outcome(head.get("is_error") is True, message=message, structured=body if _is_object(body) else b"")

    def _explain(self, what: str) -> str:
        lines = [f"MCP server {self.config.name!r} {what}: {self.status.error or 'its connection ended'}."]
        last = self._stderr.lines()[-_LAST_LINES:] if self._stderr is not None else []
        return "\n".join([*lines, *(["Its last lines of standard error:"] if last else []), *last])


def _check_config(config: ServerConfig) -> None:
    if config.problem:
        raise ToolFailure(config.problem)


def _check(run: ServerRun) -> None:
    if run.over:
        raise ToolFailure(run.over)


_STOPPED: Final = "The call was stopped, and cancelled in the server."


class _Listener:
    """Handles the messages about one run of a server."""

    def __init__(self, server: Server, run: ServerRun) -> None:
        self._server = server
        self._run = run

    def on_message(self, head: Mapping[str, Any], body: bytes) -> None:
        """Handle a message about the session."""
        if "opened" in head or "listing" in head:
            self._server.listed(self._run, body)
        elif "message" in head or "cancelled" in head:
            self._relay(head, body)
        elif "problem" in head:
            self._server.status.problems.append(plain(str(head["problem"])))
        elif "failed" in head or "closed" in head:
            self._run.fault = head.get("fault") is True
            if not self._run.reason.done():
                self._run.reason.set_result(plain(str(head.get("failed") or head.get("closed"))))
            self._server.end_soon(self._run)

    def _relay(self, head: Mapping[str, Any], body: bytes) -> None:
        """Pass on what the server asks or reports."""
        clients, session = self._server.clients, self._run.session
        if "cancelled" in head:
            clients.cancel((session, int(head["cancelled"])))
            return
        method, name = str(head["message"]), self._server.config.name
        if not isinstance(head.get("request"), int):
            clients.report(name, method, json.loads(body))
            return
        number: int = head["request"]
        reply = partial(self._run.client.reply, session, number)
        try:
            clients.request(name, (session, number), (method, json.loads(body)), reply)
        except RecursionError:
            reply(refusal(INTERNAL_ERROR, "its params are too deep"))

    def on_lost(self, why: str) -> None:
        """Handle the end of the MCP client process."""
        self._server.ended(self._run, why)


def _describe_end(ended: ProcessEnd) -> str:
    if ended.failure:
        return ended.failure
    if ended.signal is not None:
        return f"its process was ended by signal {ended.signal}"
    return f"its process ended with exit code {ended.exit_code}"


def _progress(status: object) -> tuple[float, float, str]:
    match status:
        case [int() | float() as done, int() | float() as total, str() as message]:
            return float(done), float(total), message
        case _:
            return 0.0, 0.0, ""


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict) if body else False
    except (ValueError, RecursionError):
        return False

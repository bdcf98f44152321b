"""One MCP server of the sandbox: its state, its process, its tools, its calls."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Call, Outcome
from sandmeshd.agent.files.failures import Cut
from sandmeshd.agent.files.streams import unless_cut
from sandmeshd.agent.mcp.manager.config import ServerConfig
from sandmeshd.agent.mcp.manager.host import Frames, Home, Host, in_pipes, read_tools
from sandmeshd.agent.mcp.manager.stderr_tail import LastWords, plain
from sandmeshd.agent.processes.spawner import Ended, Process
from sandmeshd.agent.python.kernels import is_block

IDLE: Final = "IDLE"
STARTING: Final = "STARTING"
READY: Final = "READY"
FAILED: Final = "FAILED"
_END_SECONDS: Final = 2.0
"""How long a program may take to end by itself once its input is closed."""
_WORD_SECONDS: Final = 1.0
"""How long a host and a process may take to say that they ended, once the other did."""
_LAST_LINES: Final = 5


@dataclass
class Run:
    """One start of a server, until it ended."""

    host: Host
    opened: asyncio.Future[None]
    word: asyncio.Future[str]
    """What the host says of its end; `fault` where that tells more than how a process ended."""
    fault: bool = False
    session: int = 0
    process: Process | None = None
    words: LastWords | None = None
    over: str = ""
    """Why it is over."""


@dataclass
class Told:
    """What is known of a server."""

    state: str = IDLE
    error: str = ""
    problems: list[str] = field(default_factory=list[str])
    tools: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    starts: int = 0
    pid: int | None = None


class Server:
    """A server; it starts when it is needed, and again after it ended."""

    def __init__(
        self, config: ServerConfig, home: Home, host: Callable[[], Awaitable[Host]], changed: Callable[[Server], None]
    ) -> None:
        self.config = config
        self.told = Told()
        self._home = home
        self._host = host
        self._changed = changed
        self._run: Run | None = None
        self._starting: asyncio.Task[Run] | None = None
        self._words: LastWords | None = None
        self._removed = False
        self._ending: set[asyncio.Task[None]] = set()

    def describe(self) -> dict[str, Any]:
        """Give what is known of it as plain JSON."""
        told = self.told
        return {
            "name": self.config.name,
            "state": told.state,
            "transport": self.config.transport,
            "tools": list(told.tools),
            "error": told.error,
            "problems": told.problems,
            "log": self._words.lines() if self._words is not None else [],
            "starts": told.starts,
            "pid": told.pid,
        }

    # Starting.

    async def ready(self) -> Run:
        """Have it running; who comes while it starts waits for that start.

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

    def _started(self, task: asyncio.Task[Run]) -> None:
        self._starting = None
        if not task.cancelled():
            # Who waited has it already; nobody need have.
            task.exception()

    async def _start(self) -> Run:
        self.told.state, self.told.error = STARTING, ""
        self.told.starts += 1
        run: Run | None = None
        try:
            async with asyncio.timeout(self.config.startup_timeout):
                host = await self._host()
                loop = asyncio.get_running_loop()
                run = Run(host, loop.create_future(), loop.create_future())
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
        self.told.state, self._run = READY, run
        return run

    async def _fail(self, run: Run | None, why: str) -> None:
        self.told.state, self.told.error = FAILED, why.rstrip(".")
        if run is not None:
            await self._stop(run)

    async def _open(self, run: Run) -> None:
        config = self.config
        asked = {"transport": config.transport, "url": config.url, "headers": dict(config.headers)}
        listener = _Listener(self, run)
        if config.transport != "stdio":
            run.session = run.host.open(listener, asked, None)
            return
        inside, outside = in_pipes()
        run.words = self._words = LastWords()
        try:
            env = {**self._home.environment, **config.env}
            cwd = os.path.join(self._home.workspace, config.cwd)  # noqa: PTH118 - pathlib would change what was asked for
            fds = [*inside, run.words.writer]
            run.process = self._home.processes.spawn(config.command, fds, cwd=cwd, env=env, whole=True)
            run.session = run.host.open(listener, asked, outside)
        finally:
            run.words.close_writer()
            for fd in (*inside, *outside):
                os.close(fd)
        run.process.ended.add_done_callback(lambda _: self.end_soon(run))
        self.told.pid = await run.process.started

    # What the host says.

    def listed(self, run: Run, body: bytes) -> None:
        """Take the tools."""
        tools, self.told.problems = read_tools(body)
        self.told.tools = {tool["name"]: tool for tool in tools}
        if not run.opened.done():
            run.opened.set_result(None)
        self._changed(self)

    def end_soon(self, run: Run) -> None:
        """Take note that a run is over, once it is known why."""
        task = asyncio.get_running_loop().create_task(self._over(run))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _over(self, run: Run) -> None:
        """Wait for both that know of a run's end, host and process; the one or other knows why."""
        ended = run.process.ended if run.process is not None else None
        both: list[asyncio.Future[Any]] = [run.word] if ended is None else [run.word, ended]
        await asyncio.wait(both, timeout=_WORD_SECONDS)
        why = run.word.result() if run.word.done() else "its connection ended"
        if ended is not None and ended.done() and not run.fault:
            why = _how(ended.result())
        self.ended(run, why)

    def ended(self, run: Run, why: str) -> None:
        """Take note that a run is over."""
        run.over = run.over or why
        if not run.opened.done():
            run.opened.set_exception(ToolFailure(why))
            run.opened.exception()
        elif run is self._run:
            self._run = None
            self.told.state, self.told.error, self.told.pid = IDLE, why.rstrip("."), None
            self._cut(run)

    # Ending.

    def _cut(self, run: Run) -> None:
        """Let go of a run that is over, and end what is left of it."""
        run.host.close(run.session)
        if run.process is not None:
            run.process.kill()
        if run.words is not None:
            asyncio.get_running_loop().call_soon(run.words.close)

    async def _stop(self, run: Run) -> None:
        """End a run: its input is closed, and what does not end then is killed."""
        run.host.close(run.session)
        self.told.pid = None
        if run.process is not None and not run.process.ended.done():
            await asyncio.wait([run.process.ended], timeout=_END_SECONDS if run is self._run else 0)
            run.process.kill()
            await asyncio.wait([run.process.ended], timeout=_END_SECONDS)
        if run.words is not None:
            run.words.close()

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
        self.told = Told()

    # Calling.

    async def call(self, tool: str, arguments: bytes, call: Call) -> Outcome:
        """Run a tool of it."""
        call.started()
        try:
            run = await unless_cut(call, self.ready())
            if tool not in self.told.tools:
                known = ", ".join(self.told.tools) or "none"
                raise ToolFailure(f"MCP server {self.config.name!r} has no tool {tool!r} now; it has {known}.")
            frames = run.host.call(run.session, tool, arguments)
            try:
                return await unless_cut(call, self._follow(run, frames, call))
            except Cut:
                run.host.cancel(frames)
                raise
            finally:
                run.host.forget(frames)
        except Cut:
            return Outcome(is_error=True, reason=call.stop_reason or pb.END_REASON_CANCELLED, message=_STOPPED)

    async def _follow(self, run: Run, frames: Frames, call: Call) -> Outcome:
        while True:
            head, body = await frames.next()
            if "progress" in head:
                call.progress(*_progress(head["progress"]))
            elif "block" in head:
                if is_block(body):
                    await call.content(body)
                if head.get("waits") is True:
                    run.host.took(frames)
            elif "end" in head:
                return await self._result(run, head, body, call)

    async def _result(self, run: Run, head: Mapping[str, Any], body: bytes, call: Call) -> Outcome:
        message = plain(str(head.get("message", "")))
        if head.get("lost") is True:
            if run.host.alive:
                await self._over(run)
            raise ToolFailure(self._explain("ended in the middle of the call"))
        if head.get("is_error") is True and call.log.last <= 1:
            await call.text(message)
        return Outcome(head.get("is_error") is True, message=message, structured=body if _is_object(body) else b"")

    def _explain(self, what: str) -> str:
        lines = [f"MCP server {self.config.name!r} {what}: {self.told.error or 'its connection ended'}."]
        said = self._words.lines()[-_LAST_LINES:] if self._words is not None else []
        return "\n".join([*lines, *(["Its last words:"] if said else []), *said])


def _check(run: Run) -> None:
    if run.over:
        raise ToolFailure(run.over)


_STOPPED: Final = "The call was stopped; the server was told."


class _Listener:
    """Hears of one run of a server."""

    def __init__(self, server: Server, run: Run) -> None:
        self._server = server
        self._run = run

    def heard(self, head: Mapping[str, Any], body: bytes) -> None:
        """Take a frame about the session."""
        if "opened" in head or "listing" in head:
            self._server.listed(self._run, body)
        elif "problem" in head:
            self._server.told.problems.append(plain(str(head["problem"])))
        elif "failed" in head or "closed" in head:
            self._run.fault = head.get("fault") is True
            if not self._run.word.done():
                self._run.word.set_result(plain(str(head.get("failed") or head.get("closed"))))
            self._server.end_soon(self._run)

    def lost(self, why: str) -> None:
        """Take note that the host is gone."""
        self._server.ended(self._run, why)


def _how(ended: Ended) -> str:
    if ended.failure:
        return ended.failure
    if ended.signal is not None:
        return f"its process was ended by signal {ended.signal}"
    return f"its process ended with exit code {ended.exit_code}"


def _progress(told: object) -> tuple[float, float, str]:
    match told:
        case [int() | float() as done, int() | float() as total, str() as message]:
            return float(done), float(total), message
        case _:
            return 0.0, 0.0, ""


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict) if body else False
    except (ValueError, RecursionError):
        return False

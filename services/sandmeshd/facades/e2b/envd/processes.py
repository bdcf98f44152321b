"""The service `process.Process`: commands, terminals and their input."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Any, Final, cast

from aiohttp import web

from sandmesh.errors import CallFinished, InvalidArgument
from sandmesh.sandbox.processes import ProcessAsync, ProcessOptions
from sandmeshd.facades.e2b.access import requested_user
from sandmeshd.facades.e2b.envd import connect
from sandmeshd.facades.e2b.envd.followed import ProcessConfig, Running, end_event
from sandmeshd.facades.e2b.envd.paths import HOME, inside, outside
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import USER, Guest
from sandmeshd.facades.e2b.messages import STREAM_INPUT
from sandmeshd.facades.e2b.requests import natural, text, texts

_KEPT: Final = 64
"""How many processes that ended are remembered."""

_REPLAYED: Final = 16
"""How many processes keep the end of their output for those who connect later: the newest."""

_SIGNALS: Final = {"SIGNAL_SIGKILL": 9, "SIGNAL_SIGTERM": 15}


async def start(guest: Guest, request: web.Request, found: dict[str, Any]) -> web.StreamResponse:
    """Start a process and send what it writes, to its end."""
    running = await _start(guest, request, found)
    guest.processes.pop(running.pid, None)
    guest.processes[running.pid] = running
    _forget_some(guest)
    # The sandbox itself ends it when its time is over.
    return await _follow(running, request, None)


async def attach(guest: Guest, request: web.Request, found: dict[str, Any]) -> web.StreamResponse:
    """Send what a process wrote recently and what it writes from now on, to its end."""
    return await _follow(_selected(guest, found), request, connect.timeout_seconds(request))


async def list_processes(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """List the processes that run."""
    del found
    alive = {process.pid for process in await guest.box.processes.list() if process.running}
    return {
        "processes": [
            _described(process) for process in guest.processes.values() if process.pid in alive and not process.ended
        ]
    }


async def send_input(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Write to a process's input or terminal."""
    running, given = _selected(guest, found), _object(found, "input")
    encoded = text(given, "pty") or text(given, "stdin")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ApiError(400, "input is base64") from None
    try:
        await running.process.write(data)
    except (CallFinished, InvalidArgument) as error:
        raise ApiError(404, error.message) from None
    return {}


async def close_input(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Close a process's input."""
    await _selected(guest, found).process.close_stdin()
    return {}


async def send_signal(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Signal a process and its group."""
    running = _selected(guest, found)
    number = _SIGNALS.get(text(found, "signal"))
    if number is None:
        raise ApiError(400, f"signal is {' or '.join(_SIGNALS)}")
    if running.ended:
        raise _not_found(running.pid)
    try:
        await running.process.send_signal(number)
    except CallFinished:
        raise _not_found(running.pid) from None
    return {}


async def update(guest: Guest, found: dict[str, Any]) -> dict[str, Any]:
    """Resize a process's terminal."""
    running = _selected(guest, found)
    rows, columns = _size(_object(found, "pty"))
    await running.process.resize(rows, columns)
    return {}


async def stream_input(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Write to a process's input what comes as a stream; the answer is a stream of one message."""
    selected: dict[str, Any] = {}
    async for message in connect.read_messages(request):
        STREAM_INPUT.check(message)
        if "start" in message:
            selected = _object(message, "start")
        elif "data" in message:
            await send_input(guest, selected | _object(message, "data"))
    response = connect.ResponseStream(request)
    await response.open()
    await response.send({})
    return await response.end()


async def _start(guest: Guest, request: web.Request, found: dict[str, Any]) -> Running:
    process, pty = _object(found, "process"), _object(found, "pty")
    arguments: object = process.get("args") or []
    if not isinstance(arguments, list) or not all(
        isinstance(argument, str) for argument in cast("list[object]", arguments)
    ):
        raise ApiError(400, "process.args is a list of strings")
    config = ProcessConfig(
        cmd=text(process, "cmd"),
        args=cast("list[str]", arguments),
        envs=texts(process, "envs"),
        cwd=text(process, "cwd") or guest.marks.workdir,
        tag=text(found, "tag"),
        user=requested_user(request),
    )
    if not config.cmd:
        raise ApiError(400, "process.cmd says what to start")
    options: ProcessOptions = {"cwd": inside(config.cwd), "env": environment(guest, config)}
    seconds = connect.timeout_seconds(request)
    if seconds is not None:
        options["timeout"] = seconds
    if pty:
        options["pty"] = _size(pty)
    started = await guest.box.processes.start(guest.command_as(config.user, _command(config)), **options)
    if not pty and found.get("stdin") is False:
        await started.close_stdin()
    return Running(started, await _pid(started, config), config, terminal=bool(pty))


def _command(config: ProcessConfig) -> list[str]:
    """Return what is started: a script that begins with setsid is not replaced by it.

    Each process leads a process group here, and setsid(1) returns immediately where its caller does: its program would
    have no output and no exit code. As a child of the shell it leads none.
    """
    *options, script = config.args or [""]
    if options[-1:] == ["-c"] and script.startswith("setsid "):
        return [config.cmd, *options, f"{script}\nexit"]
    return [config.cmd, *config.args]


def environment(guest: Guest, config: ProcessConfig) -> dict[str, str]:
    """Return the variables of a process, as E2B's sandboxes have them."""
    directory = inside(config.cwd)
    user = guest.user(config.user)
    own = {
        "HOME": "/root" if user == "root" else guest.home if user == USER else f"/home/{user}",
        "USER": user,
        "LOGNAME": user,
        "PWD": outside(directory) if guest.home == HOME else directory,
        "E2B_SANDBOX": "true",
        "E2B_SANDBOX_ID": guest.public_id,
        "E2B_TEMPLATE_ID": guest.marks.template,
    }
    return own | config.envs


async def _pid(started: ProcessAsync, config: ProcessConfig) -> int:
    if started.pid is not None:
        return started.pid
    result = await started.wait()
    raise ApiError(400, f"{config.cmd} could not be started: {result.message}")


async def _follow(running: Running, request: web.Request, limit: float | None) -> web.StreamResponse:
    response = connect.ResponseStream(request)
    seconds = connect.keepalive_seconds(request)
    async with running.following() as subscriber:
        try:
            async with asyncio.timeout(limit):
                await response.open()
                await response.send({"event": {"start": {"pid": running.pid}}})
                while (event := await subscriber.next(seconds)) is not None:
                    await response.send({"event": event})
        except TimeoutError:
            return await response.end(_late())
    if running.result is None:
        return response.abort()
    if running.result.reason == "TIMED_OUT":
        return await response.end(_late())
    await response.send({"event": end_event(running.result)})
    return await response.end()


def _late() -> ApiError:
    return ApiError(504, "context deadline exceeded")


def _selected(guest: Guest, found: dict[str, Any]) -> Running:
    selector = _object(found, "process")
    tag: object = selector.get("tag")
    if tag is not None:
        running = next(
            (process for process in guest.processes.values() if process.config.tag == tag and not process.ended), None
        )
        if running is None:
            raise ApiError(404, f"process with tag {tag} not found")
        return running
    pid = natural(selector.get("pid"), "process.pid")
    if pid not in guest.processes:
        raise _not_found(pid)
    return guest.processes[pid]


def _not_found(pid: int) -> ApiError:
    return ApiError(404, f"process with pid {pid} not found")


def _described(running: Running) -> dict[str, Any]:
    config = running.config
    described: dict[str, Any] = {"cmd": config.cmd, "args": config.args, "envs": config.envs, "cwd": config.cwd}
    return {"config": described, "pid": running.pid} | ({"tag": config.tag} if config.tag else {})


def _forget_some(guest: Guest) -> None:
    ended = [pid for pid, one in guest.processes.items() if one.ended]
    for pid in ended[:-_KEPT]:
        del guest.processes[pid]
    for running in list(guest.processes.values())[:-_REPLAYED]:
        running.forget_output()


def _size(pty: dict[str, Any]) -> tuple[int, int]:
    size = _object(pty, "size")
    return natural(size.get("rows", 24), "rows", 10_000) or 24, natural(size.get("cols", 80), "cols", 10_000) or 80


def _object(found: dict[str, Any], name: str) -> dict[str, Any]:
    value: object = found.get(name) or {}
    if not isinstance(value, dict):
        raise ApiError(400, f"{name} is an object")
    return cast("dict[str, Any]", value)

"""The tool that waits for a server inside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from sandmesh._tools import Tool
from sandmesh._tools.processes import WaitForPort
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler

_ONE_TRY_SECONDS: Final = 5.0
_LONGEST_PAUSE: Final = 0.25


class PortTools:
    """The tools for ports of servers inside."""

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        return {WaitForPort: wait_for_port}


async def wait_for_port(request: WaitForPort, call: RunningCall) -> Outcome:
    """Wait until a port takes connections, or until a path there answers below 500."""
    call.started()

    async def ready() -> bool:
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_ONE_TRY_SECONDS):
                return await _answers(request.port, request.path)
        return False

    if await _until(ready, request.timeout, call):
        return Outcome()
    what = f"Port {request.port}" + (f" at {request.path}" if request.path else "")
    reason = call.stop_reason or pb.END_REASON_TIMED_OUT
    return Outcome(is_error=True, reason=reason, message=f"{what} did not answer in time.")


async def _answers(port: int, path: str | None) -> bool:
    reader, writer = await asyncio.open_connection("localhost", port)
    try:
        if path is None:
            return True
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n".encode())
        status = await reader.readline()
        return status.startswith(b"HTTP/") and int(status.split()[1]) < 500
    except IndexError:
        return False
    finally:
        writer.close()


async def _until(ready: Callable[[], Awaitable[bool]], seconds: float | None, call: RunningCall) -> bool:
    """Ask again and again, with short pauses, until the answer is yes, time is up or the call is stopped."""
    stopped = asyncio.Event()
    alarm = None if seconds is None else asyncio.get_running_loop().call_later(seconds, stopped.set)
    pause = 0.01
    with call.stopping(stopped.set):
        while not (found := await ready()) and not stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stopped.wait()
            pause = min(pause * 1.5, _LONGEST_PAUSE)
    if alarm is not None:
        alarm.cancel()
    return found

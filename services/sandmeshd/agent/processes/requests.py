"""The agent's requests to the zygote, sent in order."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sandmeshd.agent.calls.scarcity import SCARCE

LARGEST_MESSAGE: Final = 65_536
RETRY_SECONDS: Final = 0.05
"""How long after a request for which the machine lacked something it is sent again."""
MAX_RETRY_SECONDS: Final = 2.0
"""How long that is repeated before the request fails."""

_GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.ECONNREFUSED})


@dataclass(frozen=True)
class _SpawnRequest:
    id: int
    data: bytes
    fds: Sequence[int]
    fail: Callable[[int], None]
    deadline: float


class RequestQueue:
    """Requests that wait for room in the socket, or for what the machine lacks (see `SCARCE`).

    A request that cannot be sent within `MAX_RETRY_SECONDS` fails; one that waits for room waits for the zygote.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[_SpawnRequest] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for_room = False

    def send(self, number: int, message: dict[str, Any], fds: Sequence[int], fail: Callable[[int], None]) -> None:
        """Send a request; the descriptors remain the caller's. `fail` is called with the errno if it cannot be sent."""
        deadline = self._loop.time() + MAX_RETRY_SECONDS
        request = _SpawnRequest(number, json.dumps(message).encode(), fds, fail, deadline)
        if self._unsent or not self._attempt(request):
            try:
                self._unsent.append(replace(request, fds=_duplicate(fds)))
            except OSError as error:
                fail(error.errno or errno.EIO)

    def close(self) -> None:
        """Forget what was not sent."""
        self._wait(room=False)
        while self._unsent:
            _close(self._unsent.popleft().fds)

    def _flush(self) -> None:
        while self._unsent:
            if not self._attempt(self._unsent[0]):
                return
            _close(self._unsent.popleft().fds)
        self._wait(room=False)

    def _attempt(self, request: _SpawnRequest) -> bool:
        """Send a request; return False if it is to be sent later."""
        try:
            _send(self._control, request)
        except BlockingIOError:
            self._wait(room=True)
            return False
        except OSError as error:
            number = error.errno or errno.EIO
            if number in SCARCE and self._loop.time() < request.deadline:
                self._wait(room=False, seconds=RETRY_SECONDS)
                return False
            # Of a zygote that is gone the last reports may still be readable, and their end is handled there.
            if number not in _GONE:
                request.fail(number)
        return True

    def _wait(self, *, room: bool, seconds: float | None = None) -> None:
        """Try again when there is room, or after so many seconds, or not at all."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._flush)
        if room and not self._waits_for_room:
            self._loop.add_writer(self._control, self._flush)
        elif self._waits_for_room and not room:
            self._loop.remove_writer(self._control)
        self._waits_for_room = room


def _send(control: socket.socket, request: _SpawnRequest) -> None:
    if len(request.data) <= LARGEST_MESSAGE:
        socket.send_fds(control, [request.data], request.fds)
        return
    file = _memory_file(request.data)
    try:
        socket.send_fds(control, [json.dumps({"large": True, "id": request.id}).encode()], [file, *request.fds])
    finally:
        os.close(file)


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
    except OSError:
        os.close(fd)
        raise
    return fd


def _duplicate(fds: Sequence[int]) -> list[int]:
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(os.dup(fd))  # noqa: PERF401 - those before a failure are closed
    except OSError:
        _close(copies)
        raise
    return copies


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)

"""The process that an environment's instances are forked from, so that none of them imports it again.

A message is one JSON object on a socket that keeps messages apart. The first one has the environment: {"name",
"target", "source_bytes"}, and its source follows; the answer is {"up": true}, or {"error": text}. Then {"start":
number} comes with two descriptors, the instance's socket and its output, and {"kill": number}; {"ended": number,
"status"} reports how an instance ended.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NoReturn

from sandmeshd.agent.userland.core import syscalls
from sandmeshd.agent.userland.training import instance

_MOST_BYTES: Final = 1 << 20


def serve(control: socket.socket) -> NoReturn:
    """Import the environment, and fork an instance for each request, until the agent goes."""
    request = json.loads(control.recv(_MOST_BYTES))
    try:
        environment = load(request["name"], request["target"], _read_source(control, request["source_bytes"]))
    except BaseException:
        _send(control, {"error": traceback.format_exc(limit=-8)[-4000:]})
        sys.exit(1)
    gc.freeze()
    _send(control, {"up": True})
    Host(control, environment).serve()


def load(name: str, target: str, source: str) -> type[Any]:
    """Return an environment's class; its module is installed, or made of `source`."""
    module_name, _, attribute = target.partition(":")
    if not source:
        return _class_of(import_module(module_name), attribute)
    module = sys.modules[module_name] = ModuleType(module_name)
    exec(compile(source, f"<environment {name}>", "exec"), vars(module))  # noqa: S102 - it is what this process is for
    return _class_of(module, attribute)


def _class_of(module: ModuleType, attribute: str) -> type[Any]:
    found = getattr(module, attribute)
    if not isinstance(found, type):
        raise TypeError(f"{attribute} is not a class")
    return found


def _read_source(control: socket.socket, size: int) -> str:
    parts = bytearray()
    while len(parts) < size:
        parts += control.recv(_MOST_BYTES)
    return parts.decode()


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    control.send(json.dumps(message).encode())


class Host:
    """The loop over requests and ended instances."""

    def __init__(self, control: socket.socket, environment: type[Any]) -> None:
        self._control = control
        self._environment = environment
        self._pids: dict[int, int] = {}
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> NoReturn:
        """Serve until the agent goes, and end all instances then."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake_only)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._control.fileno() in ready:
                self._request()

    def _request(self) -> None:
        data, fds, _, _ = socket.recv_fds(self._control, _MOST_BYTES, 2)
        if not data:
            for number in list(self._pids):
                self._kill(number)
            sys.exit(0)
        request = json.loads(data)
        if "kill" in request:
            self._kill(request["kill"])
        else:
            self._start(request["start"], fds)

    def _start(self, number: int, fds: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            _send(self._control, {"ended": number, "status": None, "errno": error.errno})
        else:
            if pid == 0:
                self._become_instance(*fds)
            with suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)
            self._pids[number] = pid
        finally:
            for fd in fds:
                os.close(fd)

    def _become_instance(self, channel: int, output: int) -> NoReturn:
        status = 1
        try:
            syscalls.die_with_parent()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            for fd in (self._woken, self._wake):
                os.close(fd)
            with suppress(PermissionError):
                os.setpgid(0, 0)
            for target in (1, 2):
                os.dup2(output, target)
            os.close(output)
            instance.serve(socket.socket(fileno=channel), self._environment)
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status & 0xFF)

    def _kill(self, number: int) -> None:
        pid = self._pids.get(number)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for number, pid in list(self._pids.items()):
            # Looked at before it is reaped: until then its group cannot be another's.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            self._kill(number)
            _, status = os.waitpid(pid, 0)
            del self._pids[number]
            _send(self._control, {"ended": number, "status": status})


def _wake_only(_number: int, _frame: object) -> None:
    """Take a signal whose only work is to wake the loop."""

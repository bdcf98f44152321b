"""The start of one sandbox whose root is an image: `python -I -S SITE --image-root JSON`, with its root as the JSON.

This process makes the user namespace of the sandbox, whose ids are the caller's to give, and the other namespaces below
it. Its child, PID 1, mounts the image's layers under an upper directory of the sandbox's own, enters that root and
becomes the agent, by a Python that needs nothing of the image. It stays as the sandbox's monitor, which notes PID 1 in
the status file and how it ended, as bwrap does.

bwrap is not used for it: it sets no_new_privs, with which no set-uid program works, and it maps one id.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress

from sandmeshd.agent.boot.image import filesystem, namespaces
from sandmeshd.agent.userland.core import syscalls

TYPE_CHECKING = False  # as in syscalls; dataclasses and pathlib are slow imports
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

NAME: Final = "sandmesh-root"
"""What tools show as the monitor's name."""


def run(text: str) -> NoReturn:
    """Start a sandbox, and stay as its monitor until it ends."""
    root: dict[str, Any] = json.loads(text)
    syscalls.set_name(NAME)
    try:
        os.umask(0o022)
        layers, sources = namespaces.enter(root, namespaces.make_user_namespace(root["maps"]))
        waiting, go = os.pipe()
        child = syscalls.fork_bare()
        if child == 0:
            os.close(go)
            # Nothing of it runs before it is noted where the host looks for it.
            os.read(waiting, 1)
            _become_agent(root, layers, sources)
        _monitor(root["status"], child, go)
    except (OSError, ValueError) as error:
        _fail(root["ready"], error)
    finally:
        os._exit(1)


def _fail(ready: int, error: Exception) -> None:
    with suppress(OSError):
        os.write(ready, json.dumps({"error": f"its root could not be made: {error}"}).encode() + b"\n")


def _monitor(status: int, child: int, go: int) -> NoReturn:
    os.write(status, json.dumps({"child-pid": child}).encode() + b"\n")
    os.write(go, b"1")
    namespaces.become_root()
    syscalls.drop_capabilities()
    syscalls.close_all_but([status])
    _, ended = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(ended)
    os.write(status, json.dumps({"exit-code": code if code >= 0 else 128 - code}).encode() + b"\n")
    os._exit(0)


def _become_agent(root: dict[str, Any], layers: list[list[int]], sources: list[tuple[int, str]]) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        namespaces.become_root()
        filesystem.enter(root, layers, sources)
        kept, seccomp = root["kept"], _read_all(root["filter"])
        syscalls.close_all_but([0, 1, 2, root["ready"], *kept])
        syscalls.install_filter(seccomp)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        os.execve(root["argv"][0], root["argv"], {})  # noqa: S606 - no shell is wanted
    except (OSError, ValueError) as error:
        _fail(root["ready"], error)
    finally:
        os._exit(1)


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()

"""The namespaces that user code lives in, and the zygote as their first process.

The agent forks while it has one thread and has read no secret. The child waits for what it needs to know, moves into
user, mount and pid namespaces of its own, hides what is not user code's, gives up every privilege and becomes the
zygote's program under the template's interpreter. In a container, which allows no such namespaces, user code is kept
apart by its uid, and what it forks gives up the zygote's privileges.
"""

from __future__ import annotations

import base64
import json
import os
import socket

from sandmeshd.agent.userland import syscalls, users
from sandmeshd.agent.userland import walls as nesting

TYPE_CHECKING = False  # as in syscalls; pathlib is as slow
if TYPE_CHECKING:
    from typing import Any, NoReturn

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(__file__)), "userland", "__main__.py")  # noqa: PTH118, PTH120
LARGEST_MESSAGE = 1 << 20


def control_sockets() -> tuple[socket.socket, socket.socket]:
    """Give the two ends of what agent and zygote speak over."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST_MESSAGE)
    return ends


def fork_zygote(doors: list[int], told: bytes = b"") -> socket.socket:
    """Fork the process that becomes the zygote, at the other end of the socket that is given back.

    Without `told`, which `describe` gives, it waits for that on the socket. It alone keeps `doors`, by which what it
    forks moves itself to where limits hold.
    """
    ours, theirs = control_sockets()
    if os.fork() == 0:
        ours.close()
        _be_born(theirs, doors, told)
    theirs.close()
    for door in doors:
        os.close(door)
    return ours


def describe(python: str, environment: dict[str, str], hidden: str, seccomp: bytes, user: int = 0) -> bytes:
    """Give the message that lets the zygote be born; `user` is the uid that keeps user code apart, 0: namespaces do."""
    told = {"python": python, "environment": environment, "hidden": hidden, "user": user}
    return json.dumps({**told, "seccomp": base64.b64encode(seccomp).decode()}).encode()


def _be_born(control: socket.socket, doors: list[int], message: bytes) -> NoReturn:
    try:
        _settle(control, doors)
        told = json.loads(message or control.recv(LARGEST_MESSAGE) or "null")
        if told is not None and told["user"]:
            users.pass_on_capabilities()
            nesting.restrict(base64.b64decode(told["seccomp"]))
            _become_zygote(control, ["apart", str(told["user"])], doors, told)
        if told is not None and nesting.enter_nested_namespaces() == 0:
            nesting.hide(told["hidden"])
            nesting.give_up_privileges(base64.b64decode(told["seccomp"]))
            _become_zygote(control, ["zygote"], doors, told)
    except (OSError, ValueError) as error:
        control.send(json.dumps({"error": f"user code's namespaces could not be made: {error}"}).encode())
    finally:
        os._exit(1)


def _settle(control: socket.socket, doors: list[int]) -> None:
    """Keep the socket and the log (standard error) alone; the agent's other descriptors are none of user code's."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    syscalls.close_all_but([0, 1, 2, control.fileno(), *doors])


def _become_zygote(control: socket.socket, module: list[str], doors: list[int], told: dict[str, Any]) -> NoReturn:
    passed = [control.fileno(), *doors]
    for fd in passed:
        os.set_inheritable(fd, True)
    arguments = [told["python"], "-I", PROGRAM, *module, *map(str, passed)]
    os.execve(told["python"], arguments, told["environment"])  # noqa: S606 - no shell is wanted

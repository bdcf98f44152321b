"""The namespaces of a sandbox that has a range of ids, and what of the host it takes along into them."""

from __future__ import annotations

import array
import os
import socket

from sandmeshd.agent.boot.image import mounts
from sandmeshd.agent.boot.image.filesystem import DEVICES, DISK
from sandmeshd.agent.userland.core import isolation, syscalls

TYPE_CHECKING = False  # as in syscalls
if TYPE_CHECKING:
    from typing import Any, Final

MAPPERS: Final = {"uid_map": "newuidmap", "gid_map": "newgidmap"}
OTHERS: Final = (
    syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWCGROUP
)


def enter(root: dict[str, Any], namespace: int, host: str = "") -> tuple[list[list[int]], list[tuple[int, str]]]:
    """Enter a user namespace, and other namespaces of a sandbox's own below it.

    `host` is where the host's root is. Returns: the layers of each image and the directories of the host as detached
    mounts, the latter with their places inside.

    Raises:
        OSError: The kernel does not allow it.
    """
    images = [root["layers"], *root["images"]]
    owned = [*(path for layers in images for path in layers), *(source for source, _ in root["caches"])]
    # Who may give files other owners has no right in the sandbox's namespaces, and who has that may not.
    mapped = [mounts.detached(path, root=host) for path in owned] if root["map_layers"] else []
    for mount in mapped:
        mounts.map_ids(mount, namespace)
    syscalls.join(namespace)
    os.close(namespace)
    syscalls.unshare(OTHERS)
    remaining = mapped or [mounts.detached(path, root=host) for path in owned]
    found = [[remaining.pop(0) for _ in layers] for layers in images]
    sources = [(mounts.detached(f"/dev/{name}"), f"/dev/{name}") for name in DEVICES]
    if not root["disk_bytes"]:
        sources.append((mounts.detached(root["disk"], root=host), DISK))
    sources += [(taken(source, host, writable=writable), target) for source, target, writable in root["binds"]]
    for mount, (_, target) in zip(remaining, root["caches"], strict=True):
        mounts.restrict(mount, mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV)
        sources.append((mount, target))
    return found, sources


def taken(source: str, host: str = "", *, writable: bool = False) -> int:
    """Return a directory and what is mounted below it as a detached mount, without devices and set-uid programs."""
    mount = mounts.detached(source, with_others=True, root=host)
    attributes = mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV
    mounts.restrict(mount, attributes | (0 if writable else mounts.MOUNT_ATTR_RDONLY))
    return mount


def become_root() -> None:
    """Become root of this user namespace, whose ids are used only there."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    syscalls.set_dumpable(False)


def make_user_namespace(maps: dict[str, list[list[int]]], parent: int = -1) -> int:
    """Return a descriptor of a new user namespace with these maps: lines of id inside, id outside and count.

    `parent` is the user namespace that it is below, whose ids those outside are; negative: this process's.

    Raises:
        OSError: The kernel does not allow it, or the ids are not this user's.
    """
    if parent < 0:
        return _make(maps, by_program=os.geteuid() != 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        child = syscalls.fork_bare()
        if child == 0:
            try:
                # Only who is in the parent may write a map of its ids, and only who has one of them may make another.
                syscalls.join(parent)
                become_root()
                made = array.array("i", [_make(maps, by_program=False)])
                theirs.sendmsg([b"1"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, made)])
            except OSError as error:
                theirs.send(str(error).encode())
            finally:
                os._exit(0)
        theirs.close()
        message, received, _, _ = socket.recv_fds(ours, 512, 1)
    os.waitpid(child, 0)
    if not received:
        raise OSError(message.decode() or "no user namespace could be made")
    return received[0]


def _make(maps: dict[str, list[list[int]]], *, by_program: bool) -> int:
    waiting, end = os.pipe()
    ready, made = os.pipe()
    child = syscalls.fork_bare()
    if child == 0:
        os.close(end)
        try:
            # Whose namespace it becomes is seen in /proc, which is closed where this process is.
            syscalls.set_dumpable(True)
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(made, b"1")
            os.read(waiting, 1)
        finally:
            os._exit(0)
    try:
        os.close(made)
        if not os.read(ready, 1):
            raise OSError("no user namespace could be made")
        for name, lines in maps.items():
            _write_map(child, name, lines, by_program=by_program)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (waiting, end, ready):
            os.close(descriptor)
        os.waitpid(child, 0)


def _write_map(pid: int, name: str, lines: list[list[int]], *, by_program: bool) -> None:
    if not by_program:
        isolation.write(f"/proc/{pid}/{name}", "".join(f"{' '.join(map(str, line))}\n" for line in lines))
        return
    program = MAPPERS[name]
    numbers = [str(number) for line in lines for number in line]
    mapper = os.posix_spawnp(program, [program, str(pid), *numbers], {"PATH": os.defpath + ":/usr/sbin:/sbin"})
    if os.waitpid(mapper, 0)[1]:
        raise OSError(f"{program} did not map the ids {lines}: see /etc/subuid and /etc/subgid")

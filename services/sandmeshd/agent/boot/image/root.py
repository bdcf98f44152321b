"""The start of a sandbox whose root is an image: `python -I -S SITE --image-root JSON`, with its `Root` as the JSON.

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
import socket
from contextlib import suppress

from sandmeshd.agent.boot import loopback
from sandmeshd.agent.boot.image import mounts
from sandmeshd.agent.userland.core import isolation, syscalls

TYPE_CHECKING = False  # as in syscalls; dataclasses and pathlib are slow imports
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

NAME: Final = "sandmesh-root"
"""What tools show as the monitor's name."""
MAPPERS: Final = {"uid_map": "newuidmap", "gid_map": "newgidmap"}
_STAGING: Final = "/tmp"  # noqa: S108 - covered in this mount namespace only
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_SHUT: Final = syscalls.MS_NOSUID | syscalls.MS_NODEV
_DISK: Final = "disk"
"""Where the sandbox's own directory of the host is while its root is made."""
_LOW_PORTS: Final = "/proc/sys/net/ipv4/ip_unprivileged_port_start"


def run(text: str) -> NoReturn:
    """Start a sandbox, and stay as its monitor until it ends."""
    root: dict[str, Any] = json.loads(text)
    syscalls.set_name(NAME)
    try:
        os.umask(0o022)
        layers, sources = _enter_namespaces(root)
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


def _enter_namespaces(root: dict[str, Any]) -> tuple[list[list[int]], list[tuple[int, str]]]:
    """Enter namespaces of the sandbox's own; return the layers of each image and directories as detached mounts."""
    namespace = _make_user_namespace(root["maps"])
    images = [root["layers"], *root["images"]]
    owned = [*(path for layers in images for path in layers), *(source for source, _ in root["caches"])]
    # Who may give files other owners has no right in the sandbox's namespaces, and who has that may not.
    mapped = [mounts.detached(path) for path in owned] if root["map_layers"] else []
    for mount in mapped:
        mounts.map_ids(mount, namespace)
    syscalls.join(namespace)
    os.close(namespace)
    syscalls.unshare(
        syscalls.CLONE_NEWNS
        | syscalls.CLONE_NEWPID
        | syscalls.CLONE_NEWIPC
        | syscalls.CLONE_NEWUTS
        | syscalls.CLONE_NEWNET
        | syscalls.CLONE_NEWCGROUP
    )
    remaining = mapped or [mounts.detached(path) for path in owned]
    found = [[remaining.pop(0) for _ in layers] for layers in images]
    sources = [(mounts.detached(f"/dev/{name}"), f"/dev/{name}") for name in _DEVICES]
    if not root["disk_bytes"]:
        sources.append((mounts.detached(root["disk"]), _DISK))
    for source, target, writable in root["binds"]:
        mount = mounts.detached(source, with_others=True)
        attributes = mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV
        mounts.restrict(mount, attributes | (0 if writable else mounts.MOUNT_ATTR_RDONLY))
        sources.append((mount, target))
    for mount, (_, target) in zip(remaining, root["caches"], strict=True):
        mounts.restrict(mount, mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV)
        sources.append((mount, target))
    return found, sources


def _make_user_namespace(maps: dict[str, list[list[int]]]) -> int:
    """Return a descriptor of a new user namespace with these maps: lines of id inside, id outside and count."""
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
            _write_map(child, name, lines)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (waiting, end, ready):
            os.close(descriptor)
        os.waitpid(child, 0)


def _write_map(pid: int, name: str, lines: list[list[int]]) -> None:
    if os.geteuid() == 0:
        isolation.write(f"/proc/{pid}/{name}", "".join(f"{' '.join(map(str, line))}\n" for line in lines))
        return
    program = MAPPERS[name]
    numbers = [str(number) for line in lines for number in line]
    mapper = os.posix_spawnp(program, [program, str(pid), *numbers], {"PATH": os.defpath + ":/usr/sbin:/sbin"})
    if os.waitpid(mapper, 0)[1]:
        raise OSError(f"{program} did not map the ids {lines}: see /etc/subuid and /etc/subgid")


def _monitor(status: int, child: int, go: int) -> NoReturn:
    os.write(status, json.dumps({"child-pid": child}).encode() + b"\n")
    os.write(go, b"1")
    _become_root()
    syscalls.drop_capabilities()
    syscalls.close_all_but([status])
    _, ended = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(ended)
    os.write(status, json.dumps({"exit-code": code if code >= 0 else 128 - code}).encode() + b"\n")
    os._exit(0)


def _become_root() -> None:
    """Become root of the sandbox's user namespace, whose ids are used only there."""
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    syscalls.set_dumpable(False)


def _become_agent(root: dict[str, Any], layers: list[list[int]], sources: list[tuple[int, str]]) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become_root()
        isolation.keep_mounts_private()
        for mount, target in _enter_root(root, layers, sources):
            os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103 - pathlib is a slow import
            mounts.attach(mount, target)
        _furnish(root)
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


def _enter_root(root: dict[str, Any], images: list[list[int]], sources: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Mount the image's layers and enter them; return what is to be attached there, with where.

    The layers of other images are mounted, too, read-only, where the agent alone sees them.
    """
    syscalls.mount("tmpfs", _STAGING, "tmpfs", _SHUT, "mode=0700,size=1m")
    os.chdir(_STAGING)
    for name in ("empty", "none"):
        os.mkdir(name)  # noqa: PTH102 - pathlib is a slow import, here and below
    lower, *others = [_lower(f"{number}-", layers) for number, layers in enumerate(images)]
    places = [_processes(), _devices([one for one in sources if one[1].startswith("/dev/")], root["scratch"])]
    places += [(_memory(mode, root["scratch"]), target) for target, mode in root["memory"]]
    places += _disk(root, {target: mount for mount, target in sources if not target.startswith("/dev/")})
    for number, other in enumerate(others):
        os.mkdir(f"image{number}")  # noqa: PTH102
        # Without an upper directory there must be two.
        shut = _SHUT | syscalls.MS_RDONLY
        syscalls.mount("overlay", f"image{number}", "overlay", shut, f"lowerdir={other}:none,userxattr")
        places.append((mounts.detached(f"image{number}"), f"{root['images_directory']}/{number}"))
    os.mkdir("root")  # noqa: PTH102
    options = f"lowerdir={lower},upperdir=disk/upper,workdir=disk/work,userxattr,volatile"
    syscalls.mount("overlay", "root", "overlay", syscalls.MS_NODEV, options)
    mounts.enter_root("root")
    return places


def _lower(prefix: str, layers: list[int]) -> str:
    """Attach an image's layers; return overlayfs's list of them, the highest first."""
    names = ["empty"]
    for number, layer in enumerate(layers):
        names.append(f"{prefix}{number}")
        os.mkdir(names[-1])  # noqa: PTH102
        mounts.attach(layer, names[-1])
    return ":".join(reversed(names))


def _disk(root: dict[str, Any], sources: dict[str, int]) -> list[tuple[int, str]]:
    """Make the upper directory, in memory where its size is limited; return the directories of the host.

    The workspace is in memory with it then, so that both share that size.
    """
    os.mkdir("disk")  # noqa: PTH102
    if root["disk_bytes"]:
        isolation.mount_memory("disk", "0755", root["disk_bytes"])
    else:
        mounts.attach(sources.pop(_DISK), "disk")
    for name in ("upper", "work"):
        os.makedirs(f"disk/{name}", exist_ok=True)  # noqa: PTH103
    places = [(mount, target) for target, mount in sources.items()]
    # As it is, for the agent's snapshots; in user code's view, what is above it is covered.
    upper = mounts.detached("disk/upper")
    mounts.restrict(upper, mounts.MOUNT_ATTR_RDONLY | mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV)
    places.append((upper, root["changes"]))
    if root["disk_bytes"]:
        os.mkdir("disk/workspace")  # noqa: PTH102
        places.append((mounts.detached("disk/workspace"), root["workspace"]))
    return places


def _processes() -> tuple[int, str]:
    os.mkdir("proc")  # noqa: PTH102
    syscalls.mount("proc", "proc", "proc", _SHUT | syscalls.MS_NOEXEC)
    return mounts.detached("proc"), "/proc"


def _devices(nodes: list[tuple[int, str]], scratch: int) -> tuple[int, str]:
    os.mkdir("dev")  # noqa: PTH102
    syscalls.mount("tmpfs", "dev", "tmpfs", _SHUT | syscalls.MS_NOEXEC, "mode=0755,size=64k")
    for mount, target in nodes:
        place = target.removeprefix("/")
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        mounts.attach(mount, place)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"dev/{name}")  # noqa: PTH211 - as above
    for name in ("pts", "shm"):
        os.mkdir(f"dev/{name}")  # noqa: PTH102
    terminals = syscalls.MS_NOSUID | syscalls.MS_NOEXEC
    syscalls.mount("devpts", "dev/pts", "devpts", terminals, "newinstance,ptmxmode=0666,mode=620")
    isolation.mount_memory("dev/shm", "1777", scratch)
    return mounts.detached("dev", with_others=True), "/dev"


def _memory(mode: str, size: int) -> int:
    os.mkdir("memory")  # noqa: PTH102
    isolation.mount_memory("memory", mode, size)
    mount = mounts.detached("memory")
    mounts.detach("memory")
    os.rmdir("memory")  # noqa: PTH106
    return mount


def _furnish(root: dict[str, Any]) -> None:
    """Write what images lack of /etc, and open what their programs expect of a network of their own."""
    for place in ("/etc", root["working_directory"]):
        os.makedirs(place, 0o755, exist_ok=True)  # noqa: PTH103
    for name, text in root["etc"].items():
        path = f"/etc/{name}"
        # A link that leads nowhere is the image's own matter.
        if not os.path.lexists(path) or (os.path.isfile(path) and not os.path.getsize(path)):  # noqa: PTH113, PTH202
            with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
                file.write(text)
    if root["low_ports"] and os.access(_LOW_PORTS, os.F_OK):
        # Its capability of that name is in a user namespace below the network's.
        isolation.write(_LOW_PORTS, "0")
    loopback.bring_up()
    socket.sethostname(root["host_name"])


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()

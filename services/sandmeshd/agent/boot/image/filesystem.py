"""The root of a sandbox that is made of an image: its layers, what is its own, and what the kernel gives every process.

It is put together where no link of the image's can lead astray, then entered: see `mounts`.
"""

from __future__ import annotations

import os
import socket

from sandmeshd.agent.boot import loopback
from sandmeshd.agent.boot.image import mounts
from sandmeshd.agent.userland.core import isolation, syscalls

TYPE_CHECKING = False  # as in syscalls
if TYPE_CHECKING:
    from typing import Any, Final

DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
DISK: Final = "disk"
"""Where the sandbox's own directory of the host is while its root is made."""
STAGING: Final = "/tmp"  # noqa: S108 - covered in this mount namespace only
_DEVICE_LINKS: Final = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_SHUT: Final = syscalls.MS_NOSUID | syscalls.MS_NODEV
_LOW_PORTS: Final = "/proc/sys/net/ipv4/ip_unprivileged_port_start"


def enter(root: dict[str, Any], images: list[list[int]], sources: list[tuple[int, str]]) -> None:
    """Enter the root that is made of detached mounts: images' layers, and others with the places inside.

    Raises:
        OSError: The kernel does not allow it.
    """
    isolation.keep_mounts_private()
    for mount, target in _enter_root(root, images, sources):
        os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103 - pathlib is a slow import, here and below
        mounts.attach(mount, target)
    _furnish(root)


def _enter_root(root: dict[str, Any], images: list[list[int]], sources: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Mount the image's layers and enter them; return what is to be attached there, with where.

    The layers of other images are mounted, too, read-only, where only the agent sees them.
    """
    syscalls.mount("tmpfs", STAGING, "tmpfs", _SHUT, "mode=0700,size=1m")
    os.chdir(STAGING)
    for name in ("empty", "none"):
        os.mkdir(name)  # noqa: PTH102 - pathlib is a slow import, here and below
    lower, *others = [_lower(f"{number}-", layers) for number, layers in enumerate(images)]
    places = [_processes(), devices([source for source in sources if source[1].startswith("/dev/")], root["scratch"])]
    places += [(_memory(mode, root["scratch"]), target) for target, mode in root["memory"]]
    places += _disk(root, {target: mount for mount, target in sources if not target.startswith("/dev/")})
    for number, other in enumerate(others):
        os.mkdir(f"image{number}")  # noqa: PTH102
        # Without an upper directory there must be two.
        shut = _SHUT | syscalls.MS_RDONLY
        _overlay(f"image{number}", shut, f"lowerdir={other}:none,userxattr")
        places.append((mounts.detached(f"image{number}"), f"{root['images_directory']}/{number}"))
    os.mkdir("root")  # noqa: PTH102
    options = f"lowerdir={lower},upperdir=disk/upper,workdir=disk/work,userxattr,volatile"
    _overlay("root", syscalls.MS_NODEV, options)
    mounts.enter_root("root")
    return places


def _overlay(target: str, flags: int, options: str) -> None:
    try:
        syscalls.mount("overlay", target, "overlay", flags, options)
    except OSError as error:
        fix = "load the module overlay, take Linux 5.11 or newer, or choose the docker driver"
        raise OSError(error.errno, f"{error.strerror}; images need overlayfs in user namespaces: {fix}") from None


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
        mounts.attach(sources.pop(DISK), "disk")
    for name in ("upper", "work"):
        os.makedirs(f"disk/{name}", exist_ok=True)  # noqa: PTH103
    places = [(mount, target) for target, mount in sources.items()]
    # As it is, for the agent's snapshots; in user code's view, what is above it is covered.
    upper = mounts.detached("disk/upper")
    mounts.restrict(upper, mounts.MOUNT_ATTR_RDONLY | mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV)
    places.append((upper, root["changes"]))
    if root["disk_bytes"] and root["workspace"]:
        os.mkdir("disk/workspace")  # noqa: PTH102
        places.append((mounts.detached("disk/workspace"), root["workspace"]))
    return places


def _processes() -> tuple[int, str]:
    os.mkdir("proc")  # noqa: PTH102
    syscalls.mount("proc", "proc", "proc", _SHUT | syscalls.MS_NOEXEC)
    return mounts.detached("proc"), "/proc"


def devices(nodes: list[tuple[int, str]], scratch: int) -> tuple[int, str]:
    """Make /dev of detached device nodes in this directory; return it as a detached mount, and its place."""
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
    """Write what images lack of /etc, and open what their programs expect of a separate network."""
    fill_etc(root["etc"], root["working_directory"])
    if root["low_ports"] and os.access(_LOW_PORTS, os.F_OK):
        # Its capability of that name is in a user namespace below the network's.
        isolation.write(_LOW_PORTS, "0")
    loopback.bring_up()
    socket.sethostname(root["host_name"])


def fill_etc(texts: dict[str, str], working_directory: str) -> None:
    """Write files below /etc that the image lacks, or has empty, and make the directory where processes start."""
    for place in ("/etc", working_directory):
        os.makedirs(place, 0o755, exist_ok=True)  # noqa: PTH103
    for name, text in texts.items():
        path = f"/etc/{name}"
        # A link that leads nowhere is the image's own matter.
        if not os.path.lexists(path) or (os.path.isfile(path) and not os.path.getsize(path)):  # noqa: PTH113, PTH202
            with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
                file.write(text)

"""The start of the zygote of sandboxes whose root is an image: `python -I -S SITE --image-zygote JSON`.

Its sandboxes have their own roots, and at the same places in each the Python and the code that they run by. So this
process makes a root with these and the host's below, and the zygote is that Python there. What its sandboxes are, each
request says: it serves all images and templates with one Python environment.

The template process beside it runs packages of the template. It has a root without the host's, no network, and the
ids of a user namespace that those of all sandboxes are below, in which it has no right but to enter these. Where the
driver is root the zygote is root of the host, as only that may show an image's files with a sandbox's owners; the
template process never is.

`run` stays as the zygote's parent, to end with it.
"""

from __future__ import annotations

import base64
import json
import os

from sandmeshd.agent.boot.image import filesystem, mounts, namespaces
from sandmeshd.agent.userland.core import isolation, syscalls

TYPE_CHECKING = False  # as in syscalls; pathlib is a slow import, here and below
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

HOST: Final = "/host"
"""Where the zygote sees the host's root."""
_PARENT: Final = "sandmesh-images"
_SYS_ADMIN: Final = 21
_SCRATCH_BYTES: Final = 64 << 20


def run(text: str) -> NoReturn:
    """Make the zygote, and stay until it ends."""
    start: dict[str, Any] = json.loads(text)
    syscalls.set_name(_PARENT)
    os.umask(0o022)
    namespace = namespaces.make_user_namespace(start["maps"])
    others = namespaces.OTHERS
    if not start["is_root"]:
        syscalls.join(namespace)
        os.close(namespace)
        namespaces.become_root()
        namespace = -1
    # Its children are sandboxes that the driver finds by descriptors, wherever their numbers count.
    syscalls.unshare(others & ~syscalls.CLONE_NEWCGROUP)
    child = syscalls.fork_bare()
    if child == 0:
        _become_zygote(start, namespace)
    syscalls.close_all_but([0, 1, 2])
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _become_zygote(start: dict[str, Any], namespace: int) -> NoReturn:
    try:
        isolation.keep_mounts_private()
        sources = [(mounts.detached("/", with_others=True), HOST), *_sources(start["binds"])]
        _enter_root([*sources, (_processes(), "/proc")])
        kept = [start["control"], *([namespace] if namespace >= 0 else [])]
        syscalls.close_all_but([0, 1, 2, *kept])
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        arguments = [start["python"], "-I", "-S", start["agent"], "--zygote-fd", str(start["control"])]
        os.execve(arguments[0], [*arguments, "--user-namespace", str(namespace)], {})  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(2, f"the zygote's root could not be made: {error}\n".encode())
    finally:
        os._exit(1)


def shut_in(image: dict[str, Any], namespace: int) -> None:
    """Enter the namespaces and the root of the template process, in the zygote's child that becomes it.

    `namespace` is the user namespace that those of sandboxes are below; negative: this process's.

    Raises:
        OSError: The kernel does not allow it.
    """
    if namespace >= 0:
        syscalls.join(namespace)
    syscalls.unshare(namespaces.OTHERS & ~syscalls.CLONE_NEWPID)
    isolation.keep_mounts_private()
    sources = [*_sources(image["binds"], HOST), (mounts.detached("/proc", with_others=True), "/proc")]
    # Only ids of this namespace can own the files of its root.
    namespaces.become_root()
    _enter_root(sources, image["home"])
    syscalls.install_filter(base64.b64decode(image["filter"]))
    uid, gid = image["user"]
    os.chown(image["home"], uid, gid)
    # It may enter its sandboxes' namespaces, and nothing else.
    right = 1 << _SYS_ADMIN
    syscalls.bound_capabilities(right)
    syscalls.keep_capabilities()
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    syscalls.set_capabilities(right, right)
    syscalls.pass_on_capability(_SYS_ADMIN)


def _sources(binds: list[tuple[str, str]], host: str = "") -> list[tuple[int, str]]:
    """Return what sandboxes have as detached mounts, with their places; `host` is where the host's root is."""
    devices = [(mounts.detached(f"/dev/{name}"), f"/dev/{name}") for name in filesystem.DEVICES]
    return [*((namespaces.taken(source, host), target) for source, target in binds), *devices]


def _processes() -> int:
    syscalls.mount("proc", filesystem.STAGING, "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC)
    mount = mounts.detached(filesystem.STAGING)
    mounts.detach(filesystem.STAGING)
    return mount


def _enter_root(sources: list[tuple[int, str]], home: str = "/") -> None:
    """Enter a root in memory that has a home and these mounts."""
    options = f"mode=0755,size={_SCRATCH_BYTES}"
    syscalls.mount("tmpfs", filesystem.STAGING, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    mounts.enter_root(filesystem.STAGING)
    for place in ("/dev", "/tmp", home):  # noqa: S108 - inside
        os.makedirs(place, 0o755, exist_ok=True)  # noqa: PTH103
    os.chmod("/tmp", 0o1777)  # noqa: S103, S108, PTH101 - as above
    for mount, target in sources:
        if target.startswith("/dev/"):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
        else:
            os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103
        mounts.attach(mount, target)

"""Steps of isolation, of a sandbox and of user code in it: they run in processes with one thread and no secrets."""

from __future__ import annotations

import os

from sandmeshd.agent.userland.core import syscalls

_QUIET = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
_SETTINGS = ("/proc/sys", "/proc/pressure")
"""What could be written there: settings of the user namespace, and triggers on the load of the whole machine."""
_COUNTED = (("max_inotify_instances", "32"), ("max_inotify_watches", "32768"))
"""What the kernel counts by uid, which neighbours share: the most of it in this user namespace."""
_USER_VIEW = "/opt/user"
"""Is there in sandboxes of a template that names its user: programs there tell starts apart by the kernel's boot_id."""
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_WORKSPACE = "/workspace"
_HOMES, _PRIVATE, _LINKED = "/home", "sandbox", "user"
"""The directory of homes, and what drivers have in it: a sandbox's private home, and a link to its workspace."""
IMAGE_IDS = 65_536
"""The ids of an image's users and groups: 0 to 65535."""
ROOT_CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29))
"""Those of root in an image: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE,
SYS_CHROOT and AUDIT_WRITE, which are Docker's without MKNOD, NET_RAW and SETFCAP. See capabilities(7)."""
_NESTED = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID


def become(uid: int, owned: tuple[str, ...] = ()) -> None:
    """Take a uid and the gid of that number, unless it is 0, along with some directories, whose groups stay.

    Raises:
        OSError: This user namespace lacks it, or this process the capability.
    """
    if uid:
        for path in owned:
            os.chown(path, uid, -1)
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def settle(uid: int, *owned: str) -> None:
    """Take a uid along with some directories, in a user namespace where it looks like the one before.

    Raises:
        OSError: This user namespace lacks it, or this process the capabilities.
    """
    user = os.getuid(), os.getgid()
    become(uid, owned)
    enter_user_namespace(0, user)
    syscalls.drop_capabilities()
    syscalls.set_dumpable(False)


def enter_user_namespace(others: int, user: tuple[int, int] | None = None) -> None:
    """Move into a user namespace of this process's own, and into the `others` below it.

    `user` is the uid and gid there, by default the same.

    Raises:
        OSError: The kernel does not allow it.
    """
    uid, gid = os.getuid(), os.getgid()
    inner_uid, inner_gid = user or (uid, gid)
    # Its own files in /proc belong to root while a process is not dumpable.
    syscalls.set_dumpable(True)
    syscalls.unshare(syscalls.CLONE_NEWUSER | others)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{inner_uid} {uid} 1")
    write("/proc/self/gid_map", f"{inner_gid} {gid} 1")


def enter_whole_user_namespace(others: int) -> None:
    """Move into a user namespace that has all ids of an image, by their numbers here, and into the `others` below it.

    This process must be root of its user namespace, with all capabilities.

    Raises:
        OSError: The kernel does not allow it.
    """
    waiting, go = os.pipe()
    namespace = os.getpid()
    helper = syscalls.fork_bare()
    if helper == 0:
        try:
            os.close(go)
            if os.read(waiting, 1):
                # A process cannot map more than its own ids for itself.
                for name in ("uid_map", "gid_map"):
                    write(f"/proc/{namespace}/{name}", f"0 0 {IMAGE_IDS}")
                os._exit(0)
        finally:
            os._exit(1)
    os.close(waiting)
    syscalls.set_dumpable(True)
    syscalls.unshare(syscalls.CLONE_NEWUSER | others)
    os.write(go, b"1")
    os.close(go)
    if os.waitpid(helper, 0)[1]:
        raise OSError("the ids of an image could not be mapped")


def enter_nested_namespaces(*, whole: bool = False) -> int:
    """Move into user, mount and pid namespaces of user code's own: the child is the first process there.

    With `whole` its user namespace has all ids of an image.

    Returns: in the child 0, in the caller the child's pid.

    Raises:
        OSError: The kernel does not allow it.
    """
    if whole:
        enter_whole_user_namespace(_NESTED & ~syscalls.CLONE_NEWUSER)
    else:
        enter_user_namespace(_NESTED)
    child = syscalls.fork_bare()
    if child == 0:
        keep_mounts_private()
        mount_processes()
        if os.access(_USER_VIEW, os.F_OK):
            _make_boot_id()
            _mount_home()
        write("/proc/sys/user/max_user_namespaces", "0")
        for name, most in _COUNTED:
            if os.access(f"/proc/sys/user/{name}", os.F_OK):
                write(f"/proc/sys/user/{name}", most)
        for place in _SETTINGS:
            if os.access(place, os.F_OK):
                syscalls.mount(place, place, "", syscalls.MS_BIND | syscalls.MS_REC)
                make_read_only(place, _QUIET)
    return child


def _make_boot_id() -> None:
    """Put another boot_id over the machine's, see random(4)."""
    text, made = os.urandom(16).hex(), f"/tmp/.{os.getpid()}.boot_id"  # noqa: S108 - the sandbox's own
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    write(made, f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}\n")
    syscalls.mount(made, _BOOT_ID, "", syscalls.MS_BIND)
    os.unlink(made)  # noqa: PTH108 - pathlib is a slow import


def _mount_home() -> None:
    """Put the workspace itself where its link is, so that programs which begin there see that path as their own."""
    link = f"{_HOMES}/{_LINKED}"
    if not os.path.islink(link) or {*os.listdir(_HOMES)} != {_PRIVATE, _LINKED}:  # noqa: PTH114, PTH208 - as below
        return
    workspace = os.readlink(link)  # noqa: PTH115 - pathlib is a slow import
    private = os.open(f"{_HOMES}/{_PRIVATE}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mount_memory(_HOMES, "0755", 4096)
    for name, source in ((_PRIVATE, f"/proc/self/fd/{private}"), (_LINKED, workspace)):
        os.mkdir(f"{_HOMES}/{name}", 0o755)  # noqa: PTH102 - as above
        syscalls.mount(source, f"{_HOMES}/{name}", "", syscalls.MS_BIND | syscalls.MS_REC)
    os.close(private)
    make_read_only(_HOMES, syscalls.MS_NOSUID | syscalls.MS_NODEV)


def path_at_home(path: str) -> str:
    """Return a path of the workspace as that below the user's home, where `_mount_home` has put it."""
    home = f"{_HOMES}/{_LINKED}"
    inside = path == _WORKSPACE or path.startswith(f"{_WORKSPACE}/")
    return home + path[len(_WORKSPACE) :] if inside and os.path.ismount(home) else path


def keep_mounts_private() -> None:
    """Stop the propagation of mounts between this mount namespace and others."""
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)


def mount_processes() -> None:
    """Make /proc show this pid namespace."""
    syscalls.mount("proc", "/proc", "proc", _QUIET)


def mount_memory(target: str, mode: str, size: int) -> None:
    """Mount a file system in memory that holds `size` bytes."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("tmpfs", target, "tmpfs", flags, f"size={size},mode={mode}")


def make_read_only(target: str, kept: int) -> None:
    """Make a mount read-only; `kept` are the flags that it has."""
    syscalls.mount("none", target, "", syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | kept)


def hide(directory: str) -> None:
    """Cover a directory, if one is named, with an empty one that is read-only."""
    if directory:
        syscalls.mount("hidden", directory, "tmpfs", syscalls.MS_RDONLY | _QUIET, "size=4k,mode=0555")


def give_up_privileges(seccomp: bytes) -> None:
    """Drop every capability for good, and load the filter of user code."""
    syscalls.drop_capabilities()
    restrict(seccomp)


def be_limited_root(seccomp: bytes) -> None:
    """Keep the capabilities of root in an image, and load the filter of user code.

    Set-uid programs work: what they gain is within the bounding set, in a user namespace whose ids are used only there.
    """
    syscalls.bound_capabilities(ROOT_CAPABILITIES)
    # Who may administer its user namespace needs no no_new_privs for it, see seccomp(2).
    syscalls.install_filter(seccomp)
    syscalls.set_capabilities(ROOT_CAPABILITIES, 0)


def be_contained_root(seccomp: bytes) -> None:
    """Keep the capabilities of root in an image, in a container's namespaces, and load the filter of user code.

    A process that administers no user namespace must forbid itself new privileges first: set-uid programs are ordinary
    ones then.
    """
    syscalls.bound_capabilities(ROOT_CAPABILITIES)
    restrict(seccomp)
    syscalls.set_capabilities(ROOT_CAPABILITIES, 0)


def restrict(seccomp: bytes) -> None:
    """Load the filter of user code; nothing that is run gains privileges by being run."""
    syscalls.forbid_new_privileges()
    syscalls.install_filter(seccomp)


def write(path: str, text: str) -> None:
    """Write to a file of the kernel's."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)

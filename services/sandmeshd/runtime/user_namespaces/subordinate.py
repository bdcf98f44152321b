"""The subordinate uids of an ordinary user: ids of the machine that root has granted only to that user.

/etc/subuid and /etc/subgid (subuid(5)) say which, and the set-uid programs newuidmap and newgidmap map them into a user
namespace of the user's. Sandboxes get one each, as they do where the driver runs as root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILES = ("subuid", "subgid")
PROGRAMS = ("newuidmap", "newgidmap")
PACKAGE_FIX = "install newuidmap and newgidmap: apt-get install uidmap, or the package shadow-utils of other systems"

_AS_ROOT = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000):
    sys.exit("no user namespace: " + os.strerror(ctypes.get_errno()))
os.write(1, b"1")
if not os.read(0, 1):
    sys.exit("its map was not written")
os.setresgid(0, 0, 0)
os.setresuid(0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command as root of a user namespace (CLONE_NEWUSER) whose map somebody else writes."""


@dataclass(frozen=True)
class Subordinate:
    """What an ordinary user has, or else why there is nothing, and what to do about it."""

    uids: range
    """The same numbers are the user's subordinate gids."""
    lacking: str = ""
    fix: str = ""


def find_subordinate(directory: Path = Path("/etc")) -> Subordinate:
    """Return the largest range of this user's that is granted as uids and as gids, if it can be mapped."""
    user = _names()
    granted = [list(_granted(directory / name, user)) for name in FILES]
    common = [range(max(u.start, g.start), min(u.stop, g.stop)) for u in granted[0] for g in granted[1]]
    uids = max(common, key=len, default=range(0))
    if len(uids) == 0:
        first = 100_000
        wanted = f"{first}-{first + 65_535}"
        fix = f"grant some that no other user has: usermod --add-subuids {wanted} --add-subgids {wanted} {user[0]}"
        return Subordinate(range(0), f"{user[0]} has no subordinate uids in {directory}/subuid and subgid", fix)
    if not all(map(shutil.which, PROGRAMS)):
        return Subordinate(range(0), "newuidmap or newgidmap is not there", PACKAGE_FIX)
    if _never_gains_privileges():
        fix = "start the mesh where no_new_privs is not set"
        return Subordinate(range(0), "newuidmap cannot work in this process (no_new_privs)", fix)
    return Subordinate(uids)


def _names() -> tuple[str, ...]:
    """Return the user's name, if any, and number."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name, str(uid)
    except KeyError:
        return (str(uid),)


def _granted(file: Path, user: tuple[str, ...]) -> Iterator[range]:
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, *numbers = line.split(":")
        if name in user and len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            first, count = map(int, numbers)
            yield range(first, first + count)


def _never_gains_privileges() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    return any(line.split() == ["NoNewPrivs:", "1"] for line in lines)


def write_maps(pid: int, inside: int, uids: range) -> None:
    """Write the maps of a process's user namespace: this user is `inside` there, and the range has its own numbers.

    Raises:
        OSError: The process has ended or has no separate user namespace, or the range is not granted.
    """
    for program, own in zip(PROGRAMS, (os.geteuid(), os.getegid()), strict=True):
        lines = (inside, own, 1, uids.start, uids.start, len(uids))
        done = subprocess.run([program, *map(str, (pid, *lines))], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{done.stderr.strip() or program}: set SANDMESH_SANDBOX_UIDS=none to do without")


def remove_as_owner(path: Path) -> bool:
    """Remove a tree in which sandboxes with subordinate uids of this user's have files; return whether it is gone."""
    uids = find_subordinate().uids if os.geteuid() else range(0)
    if not uids:
        return False
    command = [sys.executable, "-I", "-S", "-c", _AS_ROOT, "/bin/rm", "-rf", "--one-file-system", "--", str(path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        if process.stdout is not None and process.stdout.read(1):
            write_maps(process.pid, 0, uids)
        process.communicate(b"1")
    return process.returncode == 0

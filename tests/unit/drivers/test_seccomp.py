"""The system call filters, loaded into real processes."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import pytest

from sandmeshd.drivers.node.seccomp import SeccompFilters, build_filters

# Loads a filter from standard input into itself and says with which errno each call ends.
PROGRAM = """
import ctypes, json, os, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
data = sys.stdin.buffer.read()
libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, ctypes.byref(Program(len(data) // 8, data)), 0, 0) != 0:
    sys.exit("the filter was not loaded")
def of(function, *arguments):
    ctypes.set_errno(0)
    return ctypes.get_errno() if function(*(ctypes.c_ulong(a) for a in arguments)) == -1 else 0
def of_socket(family):
    try:
        socket.socket(family, 3 if family != 1 else 1).close()
    except OSError as error:
        return error.errno
    return 0
def of_clone():
    ctypes.set_errno(0)
    pid = libc.syscall(56, ctypes.c_ulong(0x10000000 | 17), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return ctypes.get_errno() if pid == -1 else os.waitpid(pid, 0)[1]
x86 = os.uname().machine == "x86_64"
pair = os.openpty()
thread = threading.Thread(target=print, args=("",), kwargs={"end": ""})
thread.start(); thread.join()
high = 1 << 32
found = {
    "unshare": of(libc.unshare, 0x10000000),
    "clone": of_clone() if x86 else 1,
    "clone3": of(libc.syscall, 435, 0, 0),
    "mount_setattr": of(libc.syscall, 442, 0, 0, 0, 0, 0),
    "set_mempolicy_home_node": of(libc.syscall, 450, 0, 0, 0, 0),
    "vmsplice": of(libc.vmsplice, pair[0], 0, 0, 0),
    "chroot": of(libc.chroot, 0),
    "tiocsti": of(libc.ioctl, pair[1], 0x5412, 0),
    "tiocsti with high bits": of(libc.syscall, 16, pair[1], 0x5412 | high, 0) if x86 else 1,
    "netlink": of_socket(16),
    "bridge": of_socket(7),
    "unix": of_socket(1),
    "personality": of(libc.personality, 0x0040000),
    "personality query": of(libc.personality, 0xFFFFFFFF),
    "getpid": of(libc.getpid),
}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def filters() -> SeccompFilters:
    return build_filters()


def _run(program: bytes) -> dict[str, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=program, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_user_code_is_denied_what_could_undo_its_walls(filters: SeccompFilters) -> None:
    found = _run(filters.user)
    denied = ("unshare", "clone", "mount_setattr", "chroot", "tiocsti", "tiocsti with high bits")
    unknown = {"netlink": errno.EINVAL, "bridge": errno.EINVAL}
    assert {name: found[name] for name in unknown} == unknown
    assert {name: found[name] for name in (*denied, "personality")} == dict.fromkeys((*denied, "personality"), 1)
    assert found["clone3"] == 38


def test_user_code_is_denied_set_mempolicy_home_node_and_vmsplice(filters: SeccompFilters) -> None:
    for program in (filters.user, filters.agent):
        found = _run(program)
        assert (found["set_mempolicy_home_node"], found["vmsplice"]) == (errno.EPERM, errno.EPERM)


def test_what_programs_need_passes(filters: SeccompFilters) -> None:
    found = _run(filters.user)
    assert {name: found[name] for name in ("unix", "personality query", "getpid")} == {
        "unix": 0,
        "personality query": 0,
        "getpid": 0,
    }


def test_the_agent_may_make_namespaces_but_no_more(filters: SeccompFilters) -> None:
    found = _run(filters.agent)
    assert 1 not in (found["unshare"], found["clone3"], found["mount_setattr"])
    assert (found["chroot"], found["tiocsti"], found["netlink"]) == (1, 1, errno.EINVAL)


def test_filters_are_whole_instructions_within_the_kernels_bound(filters: SeccompFilters) -> None:
    for program in (filters.agent, filters.user):
        assert len(program) % 8 == 0
        assert 0 < len(program) // 8 <= 4096

"""What stands between user code, the sandbox's agent, the node and its neighbours."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from sandmeshd.drivers.conformance.assertions import expect, expect_equal
from sandmeshd.drivers.conformance.inside import evaluate, run, run_cell
from sandmeshd.drivers.conformance.subject import Subject

STATUS = """
import ctypes, json
lines = open("/proc/self/status").read().splitlines()
found = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
# What not every kernel shows in a file: PR_GET_NO_NEW_PRIVS, and PR_CAP_AMBIENT_IS_SET of each.
prctl = ctypes.CDLL(None).prctl
found["NoNewPrivs"] = str(prctl(39, 0, 0, 0, 0))
found["CapAmb"] = "%x" % sum(1 << n for n in range(64) if prctl(47, 1, n, 0, 0) == 1)
print(json.dumps(found))
"""

STRIKE = """
import os
for pid in (1, 2):
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        continue
    for name in names:
        for mode in (os.O_RDONLY, os.O_WRONLY):
            try:
                fd = os.open(f"/proc/{pid}/fd/{name}", mode | os.O_NONBLOCK)
                os.read(fd, 65536) if mode == os.O_RDONLY else os.write(fd, b"0" * 512)
            except OSError:
                pass
"""

MOUNTS = """
import json, os, stat
rows = [line.split() for line in open("/proc/self/mounts")]
last = {row[1]: (row[2], row[3].split(",")) for row in rows}
found = [path for path, (kind, options) in last.items() if "rw" in options and kind != "devtmpfs"]
def masked(path):
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False
print(json.dumps([path for path in found if not masked(path)]))
"""

DENIED = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def refused(number, *arguments):
    ctypes.set_errno(0)
    return libc.syscall(number, *arguments) == -1 and ctypes.get_errno() in (1, 38)
def socket_refused(family, kind=3):
    import socket
    try:
        socket.socket(family, kind).close()
    except OSError:
        return True
    return False
x86 = os.uname().machine == "x86_64"
print(json.dumps({
    "unshare": libc.unshare(0x10000000) == -1,
    "mount": libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1,
    "umount": libc.umount2(b"/workspace", 2) == -1,
    "ptrace": refused(101 if x86 else 117, 16, 1, 0, 0),
    "bpf": refused(321 if x86 else 280, 0, 0, 0),
    "io_uring": refused(425, 1, 0),
    "keyctl": refused(250 if x86 else 219, 0, -3, 0),
    "clone3": refused(435, 0, 0),
    "netlink": socket_refused(16),
    "packet": socket_refused(17),
    "vsock": socket_refused(40, 1),
    "setuid": libc.setuid(0) == -1,
}))
"""

NEIGHBOURS = "of-the-one-beside"
"""The name of a file, which no program comes upon by itself."""

WRITES = """
import json, os
def refused(path):
    try:
        with open(path, "w") as file:
            file.write("0")
    except OSError:
        return True
    return False
paths = ["/usr/x", "/etc/x", "/x", "/dev/x", "/opt/x", "/run/x", "/proc/sys/kernel/core_pattern",
         "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/sys/x"]
print(json.dumps([path for path in paths if not refused(path)]))
"""


async def no_process_has_host_uid_0(subject: Subject) -> None:
    """Neither agent nor user code, under any user of the driver."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        await run(sandbox, "sleep 1000 >/dev/null 2>&1 &")
        processes = subject.boundary.processes(sandbox.sandbox_id)
        expect(len(processes) > 2, f"the processes are not all seen: {processes}")
        uids = {uid for pid in processes for uid in _uids(pid)}
        expect(bool(uids) and 0 not in uids, f"one has host uid 0: {uids}")


def _uids(pid: int) -> list[int]:
    # /proc/<pid> of a process that is not dumpable belongs to root, whatever its uid. One that has ended has none.
    with suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{pid}/status").read_text()
        return [int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:")]
    return []


async def user_code_has_no_privileges(subject: Subject) -> None:
    """No capability in any set, no id but its own, no new privileges, a seccomp filter: programs and kernels."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        programs = await evaluate(sandbox, STATUS)
        kernels = json.loads((await run_cell(sandbox, STATUS)).stdout)
    for status in (programs, kernels):
        sets = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        expect_equal(set(sets.values()), {0}, f"capabilities {sets}")
        expect_equal((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"), "no_new_privs and seccomp")
        ids = {name: set(status[name].split()) for name in ("Uid", "Gid")}
        expect_equal([len(each) for each in ids.values()], [1, 1], f"ids that it could change to: {ids}")
    expect_equal(kernels["Uid"], programs["Uid"], "the uid of a kernel, as that of a program")


async def user_code_writes_only_where_it_may(subject: Subject) -> None:
    """The writable mounts are exactly those expected, and nothing of the system can be written."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        mounts = await evaluate(sandbox, MOUNTS)
        written = await evaluate(sandbox, WRITES)
    expect_equal(set(mounts), set(subject.boundary.writable_mounts), "the writable mounts")
    expect_equal(written, [], "what could be written")


async def user_code_cannot_make_dangerous_system_calls(subject: Subject) -> None:
    """Namespaces, mounts, tracing, programs in the kernel, keys, raw sockets."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        denied = await evaluate(sandbox, DENIED)
    expect_equal([name for name, refused in denied.items() if not refused], [], "what was not refused")


ROUTES = """
import errno, json, socket
found = {}
for family, host in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "172.17.0.1"), (socket.AF_INET6, "2001:db8::1")):
    with socket.socket(family, socket.SOCK_DGRAM) as out:
        found[host] = errno.errorcode.get(out.connect_ex((host, 53)), "a route")
print(json.dumps(found))
"""


NO_WAY = ("ENETUNREACH", "EADDRNOTAVAIL", "EHOSTUNREACH")
"""What a kernel says where it has no route to a host; the last is gVisor's."""


async def the_network_is_loopback_only(subject: Subject) -> None:
    """The namespace has lo, up, and no other; or by what else it has nothing of user code's goes out."""
    listens = (
        "import json, socket; names = [name for _, name in socket.if_nameindex()] if False else "
        "[line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:]]; "
        "server = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(server.getsockname()).close(); print(json.dumps(names))"
    )
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        seen = await evaluate(sandbox, listens.replace("'", '"'))
        routes = await evaluate(sandbox, ROUTES)
    expect_equal(sorted(seen), sorted(subject.boundary.interfaces), "the interfaces")
    ways = {host: said for host, said in routes.items() if said not in NO_WAY}
    expect_equal(ways, {}, "the ways out")


async def the_host_is_out_of_sight(subject: Subject) -> None:
    """Its processes, its files, and the environment of the driver."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        seen = (await run(sandbox, "cat /proc/[0-9]*/cmdline")).stdout
        expect(str(Path(sys.executable).parent) not in seen, f"processes of the host are seen: {seen}")
        for path in ("/root", *subject.boundary.hidden):
            expect((await run(sandbox, f"cd {path}")).exit_code in (1, 2), f"{path} is there")
        seen = (await run(sandbox, "env; cat /proc/*/environ")).stdout
    leaked = [name for name, value in os.environ.items() if f"{name}={value}" in seen and name not in _ORDINARY]
    expect_equal(leaked, [], "variables of the driver")


_ORDINARY = frozenset(
    {
        *("LANG", "PATH", "SHELL", "SHLVL", "_", "USER", "LOGNAME", "HOME", "PWD"),
        *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"),
        *("PIP_NO_CACHE_DIR", "PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_INPUT", "NODE_USE_ENV_PROXY"),
    }
)
"""What differs between sandboxes, and may so have as the driver has it."""


async def user_code_cannot_touch_the_agent(subject: Subject) -> None:
    """Whatever is done to all that can be seen the sandbox answers; token and socket are out of reach."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        await run(sandbox, f"python3 -c '{STRIKE}'")
        await run(sandbox, "kill -9 -1; kill -9 1")
        expect_equal((await run(sandbox, "echo alive")).stdout, "alive\n", "the answer afterwards")
        found = await run(sandbox, "cat /proc/*/environ /proc/*/cmdline; find /run; find / -type s 2>/dev/null")
        expect(sandbox.agent_token not in found.stdout, "the agent's token is seen")
        expect("agent.sock" not in found.stdout, "the agent's socket is seen")


async def neighbours_do_not_see_one_another(subject: Subject) -> None:
    """Neither files nor shared memory nor abstract sockets."""
    listens = (
        'import socket, time; s = socket.socket(socket.AF_UNIX); s.bind(chr(0) + "suite"); s.listen(); time.sleep(60)'
    )
    connects = 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + "suite")'
    looks = "for place in /workspace /tmp /dev/shm; do cd $place; ls; done"
    async with subject.open() as driver, subject.sandbox(driver) as one, subject.sandbox(driver) as two:
        marks = f"/workspace/{NEIGHBOURS} /tmp/{NEIGHBOURS} /dev/shm/{NEIGHBOURS}"
        await run(one, f"echo a | tee {marks}; python3 -c '{listens}' >/dev/null 2>&1 &")
        seen = await run(
            two,
            f"{looks}; python3 -c '{connects}' 2>&1 | tail -1",
        )
    expect(NEIGHBOURS not in seen.stdout, f"a neighbour's files are seen: {seen.stdout}")
    expect("ConnectionRefusedError" in seen.stdout, f"a neighbour's socket answers: {seen.stdout}")

"""What programs take of what sandboxes share, and what their neighbours do meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.conformance.inside import call, run, run_cell

ROUNDS = 30

IN_FLIGHT = """
import array, os, socket
def fill():
    null, ends = os.open("/dev/null", os.O_RDONLY), []
    many = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 250))]
    sent = 0
    try:
        while True:
            ends.append(socket.socketpair())
            for _ in range(64):
                ends[-1][0].sendmsg([b"x"], many)
                sent += 250
    except OSError as error:
        return ends, sent, error.errno
"""

HOLDING = {
    "descriptors in flight": IN_FLIGHT
    + """
held = fill()
print(held[1] >= 2000, flush=True)
""",
    "inotify instances": """
import ctypes
libc, held = ctypes.CDLL(None, use_errno=True), 0
while held < 1000 and libc.inotify_init1(0) >= 0:
    held += 1
print(held >= 16, flush=True)
""",
    "pending signals": """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
held = 0
while held < 200_000 and libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p(1)) == 0:
    held += 1
print(held >= 1000, flush=True)
""",
}
"""Programs that take as much of something as they get, and say whether that was worth the attempt."""

PIPES = """
import fcntl, os
held = []
try:
    while len(held) < 1000:
        held.append(os.pipe())
        fcntl.fcntl(held[-1][1], fcntl.F_SETPIPE_SZ, 1 << 20)
except PermissionError:
    pass
print(len(held) >= 32, flush=True)
"""
"""Takes the memory of pipes; what is beyond it is small and slow."""

WATCHES = """
import errno, os, resource, select, sys, time
deadline = time.monotonic() + float(sys.argv[1]) if sys.argv[1:] else float("inf")
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
ends, polls, report = [end for _ in range(500) for end in os.pipe()], [], "more"
try:
    while len(polls) < min(most, 8192) - 1100 and time.monotonic() < deadline:
        polls.append(select.epoll())
        for end in ends:
            polls[-1].register(end, 1)
except OSError as error:
    report = errno.errorcode[error.errno]
print("few" if report == "more" and len(polls) < 50 else report, flush=True)
input()
"""
"""Takes epoll watches, some 200 bytes of the kernel's memory each: all, or what it has descriptors for."""

_ALL_WATCHES = f"""
import subprocess, sys, time
held, report, deadline = [], "more", time.monotonic() + 20
while report == "more" and time.monotonic() < deadline:
    pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
    command = [sys.executable, "-c", {WATCHES!r}, str(deadline - time.monotonic())]
    held.append(subprocess.Popen(command, text=True, **pipes))
    report = held[-1].stdout.readline().strip()
print(len(held) > 1 or report not in ("", "few"), flush=True)
"""

_PROCESSES = """
import os, time
held = 0
try:
    while held < 5000:
        if not os.fork():
            time.sleep(3600)
            os._exit(0)
        held += 1
except OSError:
    pass
print(held >= 50, flush=True)
"""

_MEMORY = """
import mmap
held = mmap.mmap(-1, BYTES)
for at in range(0, BYTES, 4096):
    held[at] = 1
print(True, flush=True)
while True:
    held.close()
    held = mmap.mmap(-1, BYTES)
    for at in range(0, BYTES, 4096):
        held[at] = 1
"""

_PROCESSOR = """
import os
for _ in range(15):
    if not os.fork():
        break
else:
    print(True, flush=True)
while True:
    pass
"""

_DISK = """
import os
block, first = bytes(1 << 20), True
while True:
    with open("/workspace/filling", "wb", buffering=0) as file:
        try:
            while True:
                file.write(block)
        except OSError:
            if first:
                print(True, flush=True)
                first = False
    os.unlink("/workspace/filling")
"""

_SOCKETS = """
import resource, socket
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
server, held = socket.create_server(("127.0.0.1", 0), backlog=4096), []
try:
    while len(held) < 20000:
        held += [socket.create_connection(server.getsockname()), server.accept()[0]]
        for one in held[-2:] if len(held) < 400 else ():
            one.setblocking(False)
            try:
                while True:
                    one.send(bytes(65536))
            except BlockingIOError:
                pass
except OSError:
    pass
print(len(held) >= 500, flush=True)
"""


@dataclass(frozen=True)
class Pressure:
    """A program that takes something until it is ended, and the limits that bound it, if any are needed."""

    program: str
    limits: Mapping[str, str | float | int] = field(default_factory=dict[str, str | float | int])

    def start(self) -> str:
        """Return the code of a cell that starts it, and prints True once it has what there is."""
        waiting = f"{self.program}\ninput()\n"
        return f"""
import subprocess, sys
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
taker = subprocess.Popen([sys.executable, "-c", {waiting!r}], start_new_session=True, text=True, **pipes)
print(taker.stdout.readline().strip())
"""


END = """
import os, signal
os.killpg(taker.pid, signal.SIGKILL)
print(taker.wait())
"""
"""Ends what such a cell started."""

PRESSURES = {
    **{what: Pressure(program) for what, program in HOLDING.items()},
    "epoll watches": Pressure(_ALL_WATCHES),
    "memory of pipes": Pressure(PIPES),
    "sockets": Pressure(_SOCKETS),
    "processes": Pressure(_PROCESSES, {"pids": 256}),
    "memory": Pressure(_MEMORY.replace("BYTES", str(200 << 20)), {"memory": "256MiB"}),
    "processor": Pressure(_PROCESSOR, {"cpus": 0.5}),
    "disk": Pressure(_DISK, {"disk": "64MiB"}),
}
"""What one sandbox can take of what it shares with others, with the limit that bounds it, where it takes one."""


async def many_calls(sandbox: pb.RuntimeSandbox, rounds: int = ROUNDS) -> None:
    """Make calls of several tools in a sandbox, four in each round, each of which answers."""
    for number in range(rounds):
        assert (await run(sandbox, f"echo $(echo {number})")).stdout == f"{number}\n"
        for text in (f"{number}", "again"):
            assert (await run_cell(sandbox, f"print({text!r})")).stdout == f"{text}\n"
        written = await call(sandbox, "write_file", {"path": "file", "content": f"{number}"})
        assert not written.message

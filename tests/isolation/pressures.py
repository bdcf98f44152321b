"""What programs take of what the kernel counts for all sandboxes together, and what their neighbours do meanwhile."""

from __future__ import annotations

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


async def many_calls(sandbox: pb.RuntimeSandbox, rounds: int = ROUNDS) -> None:
    """Make calls of several tools in a sandbox, four in each round, each of which answers."""
    for number in range(rounds):
        assert (await run(sandbox, f"echo $(echo {number})")).stdout == f"{number}\n"
        for text in (f"{number}", "again"):
            assert (await run_cell(sandbox, f"print({text!r})")).stdout == f"{text}\n"
        written = await call(sandbox, "write_file", {"path": "file", "content": f"{number}"})
        assert not written.message

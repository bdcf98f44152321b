"""Keys of a terminal that are signals, as the agent makes them where the kernel does not."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from sandmeshd.agent.calls.terminal_keys import SignalKeys, kernel_makes_signals

ON_TERMINAL = """
import fcntl, signal, subprocess, sys, termios, time
# Whoever started the tests may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
# One that runs behind, in a group of its own: it is reached, too.
behind = subprocess.Popen(["sleep", "1000"], process_group=0)
try:
    print("up", flush=True)
    # Not in wait(): interrupted as the other one ends, it would lose how that ended.
    while True:
        time.sleep(0.1)
except KeyboardInterrupt:
    sys.exit(behind.wait() == -2 and 7)
"""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Return the two ends of a terminal."""
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


def test_this_kernel_makes_them_itself() -> None:
    assert kernel_makes_signals()


def test_they_are_found_where_the_terminal_has_them_and_not_where_it_is_raw(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    keys = SignalKeys(master, os.ttyname(slave))
    assert keys.find(b"ab\x03c") == 2
    assert keys.find(b"abc") == 3
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~termios.ISIG
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    assert keys.find(b"ab\x03c") == 4


def test_all_that_runs_on_the_terminal_gets_the_signal(terminal: tuple[int, int]) -> None:
    master, slave = terminal
    command = [sys.executable, "-c", ON_TERMINAL]
    with subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        SignalKeys(master, os.ttyname(slave)).press(b"\x03")
        assert process.wait(60) == 7

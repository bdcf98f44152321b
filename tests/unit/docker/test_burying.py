"""What is ended of a container whose start failed."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sandmeshd.drivers.docker.burying import bury

HELPERS = ("runsc-sandbox", "runsc-gofer")
GONE, OTHER = secrets.token_hex(32), secrets.token_hex(32)


class _Named:
    """Starts processes whose first argument, and so their name in lists, is another than their program's."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        # Its own program waits for the end of its input.
        process = subprocess.Popen(arguments, executable="/bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"echo up; read line\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        return process


@pytest.fixture
def named() -> Iterator[_Named]:
    """Give what starts processes; they end with the test."""
    with ExitStack() as stack:
        yield _Named(stack)


def test_the_runtimes_processes_of_the_container_end_and_no_others(named: _Named) -> None:
    left = [
        named.start(name, "-s", "boot", "--bundle", f"/run/{GONE}", GONE) for name in ("/x/runsc-sandbox", HELPERS[1])
    ]
    others = [named.start(HELPERS[0], "-s", OTHER), named.start("sh", "-s", GONE)]
    assert bury(HELPERS, GONE) == 2
    assert [process.wait(30) for process in left] == [-9, -9]
    assert [process.poll() for process in others] == [None, None]


def test_where_nothing_is_left_nothing_is_ended() -> None:
    assert bury(HELPERS, GONE) == 0

"""Work in a child that has this process's memory: what it returns and raises, and what its forks keep."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

BEGIN = """
import ctypes, os, signal, sys
from sandmeshd.agent.userland.core import syscalls
if sys.argv[1] == "forked":
    syscalls._STACK_END = 0
"""


def printed(kind: str, program: str) -> str:
    """Run a program in a process with one thread; return what it prints."""
    command = [sys.executable, "-c", BEGIN + dedent(program), kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["borrowed", "forked"])
def test_the_result_or_the_error_of_the_work_comes_back(kind: str) -> None:
    program = """
        def fail():
            raise OSError("no such namespace")
        print(syscalls.borrow_memory(lambda: 1 << 40))
        print(syscalls.borrow_memory(os.getpid) != os.getpid())
        try:
            syscalls.borrow_memory(fail)
        except OSError as error:
            print(error)
        try:
            syscalls.borrow_memory(lambda: os.kill(os.getpid(), signal.SIGKILL))
        except ChildProcessError:
            print("killed")
    """
    assert printed(kind, program).splitlines() == [str(1 << 40), "True", "no such namespace", "killed"]


@pytest.mark.parametrize("kind", ["borrowed", "forked"])
def test_what_the_work_forks_has_its_own_memory_and_registered_sequences(kind: str) -> None:
    program = """
        values, registered = [1], syscalls._SEQUENCES
        reader, writer = os.pipe()
        def start():
            child = syscalls.fork_bare()
            if child == 0:
                values.append(2)
                unregister = [334, *map(ctypes.c_ulong, registered), 1, ctypes.c_uint(syscalls.RSEQ_SIGNATURE)]
                kept = registered == (0, 0) or ctypes.CDLL(None).syscall(*unregister) == 0
                os.write(writer, f"{values} {kept}".encode())
                os._exit(0)
            return child
        print(syscalls.borrow_memory(start) > 0, os.read(reader, 100).decode(), values)
    """
    assert printed(kind, program) == "True [1, 2] True [1]\n"

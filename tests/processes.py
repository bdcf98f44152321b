"""What the kernel tells of processes and folders that may end, be closed or be removed while they are looked at."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


def command_of(pid: int | str) -> str:
    """Return a process's command line, its parts ended by NUL: nothing where it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def parent_of(pid: int | str) -> int:
    """Return a process's parent: 0 where it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def children_of(pid: int) -> set[int]:
    """Return a process's children, by all processes' parents: the kernel's own list may miss one while another ends."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return {each for each in pids if parent_of(each) == pid}


def files_below(folder: Path, name: str) -> list[Path]:
    """Return the files of a name below a folder: a glob fails by directories that are removed meanwhile."""
    return [Path(at, name) for at, _, names in os.walk(folder) if name in names]


def links_of(pid: int | str) -> Iterator[str]:
    """Yield what a process's descriptors lead to, those left out that it closes meanwhile."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                yield os.readlink(path)  # noqa: PTH115 - what a link leads to need not be a path


@contextmanager
def named(*arguments: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a process whose name in lists, its first argument, is another than its program's; it waits to be ended."""
    with subprocess.Popen(arguments, executable="/bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"echo up; read line\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()

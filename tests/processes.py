"""What the kernel tells of processes that may end, or close what they have open, while they are looked at."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def command_of(pid: int | str) -> str:
    """Give a process's command line, its parts ended by NUL: nothing where it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def links_of(pid: int | str) -> Iterator[str]:
    """Give what a process's descriptors lead to, those left out that it closes meanwhile."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                yield os.readlink(path)  # noqa: PTH115 - what a link leads to need not be a path

"""The sandbox's table of processes, as proc(5) has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress


def others() -> Iterator[tuple[int, list[str]]]:
    """Yield every process but this one, with the fields of its `stat` from the state on."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib is a slow import
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - as above
                yield int(name), file.read().rpartition(b")")[2].decode().split()

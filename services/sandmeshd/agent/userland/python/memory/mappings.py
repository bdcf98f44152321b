"""The memory of a process as /proc shows it: its mappings, and which of their pages are its own."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sandmeshd.agent.userland.core.syscall_table import PAGE

_OWN: Final = bytes(int(bool(flags & 0xC0) and not flags & 0x20) for flags in range(256))
"""For the highest byte of an entry of `pagemap`: whether the page is there (or swapped out) and not a file's."""
_RUNS: Final = re.compile(rb"\x01+(?:\x00{1,16}\x01+)*")
"""Pages that are a process's own. Those between, if they are few, cost less than another piece."""
_KERNELS: Final = ("[vvar]", "[vvar_vclock]", "[vdso]", "[vsyscall]", "[uprobes]")
_HIGHEST: Final = 1 << 47


@dataclass(frozen=True)
class Mapping:
    """A range of addresses that are mapped alike."""

    start: int
    end: int
    access: int
    """What may be done with it, as mmap's `prot`."""
    shared: bool
    offset: int
    inode: int
    path: str

    @property
    def is_kernels(self) -> bool:
        """Whether the kernel put it there, for every process."""
        return self.path in _KERNELS


def mappings(pid: int | str) -> list[Mapping]:
    """Return the mappings of a process below the kernel's own addresses, by their order."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - pathlib is a slow import
        found = [_parsed(line) for line in file]
    return [mapping for mapping in found if mapping.start < _HIGHEST]


def _parsed(line: str) -> Mapping:
    addresses, access, offset, _, inode, *path = line.rstrip("\n").split(maxsplit=5)
    start, end = (int(address, 16) for address in addresses.split("-"))
    bits = zip("rwx", (mmap.PROT_READ, mmap.PROT_WRITE, mmap.PROT_EXEC), strict=True)
    allowed = sum(bit for letter, bit in bits if letter in access)
    return Mapping(start, end, allowed, access[3] == "s", int(offset, 16), int(inode), path[0] if path else "")


def own_pages(pagemap: Any, mapping: Mapping) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a private mapping's pages that differ from its file, or from zeros where it has none."""
    pagemap.seek(mapping.start // PAGE * 8)
    flags = pagemap.read((mapping.end - mapping.start) // PAGE * 8)[7::8].translate(_OWN)
    for run in _RUNS.finditer(flags):
        yield mapping.start + run.start() * PAGE, mapping.start + run.end() * PAGE

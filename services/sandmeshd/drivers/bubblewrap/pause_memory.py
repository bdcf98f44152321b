"""What a paused sandbox holds of the machine's memory, and how what it can do without goes back.

A sandbox with a control group of memory is measured by it, file cache and files in memory included; any other by what
its processes have mapped, of shared pages their part (`Pss`, proc_pid_smaps_rollup(5)).

Only a group can be reclaimed from: by `memory.reclaim` of version 2, or `memory.force_empty` of version 1. File cache
always goes back. What programs allocated goes to swap where the machine has some, and stays where it is else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.bubblewrap.cgroups.files import number

_STEP_BYTES: Final = 64 << 20
"""Reclaimed by one write, so that a resume need not wait for all of it."""
_MOST_SECONDS: Final = 2.0

_CURRENT, _RECLAIM, _SWAP_MAX = "memory.current", "memory.reclaim", "memory.swap.max"
_CURRENT_1, _RECLAIM_1 = "memory.usage_in_bytes", "memory.force_empty"


@dataclass(frozen=True)
class HeldMemory:
    """Memory in bytes, and how it was measured."""

    held_bytes: int
    measure: str


def measure(groups: Iterable[Path], processes: Iterable[int]) -> HeldMemory:
    """Return what a sandbox holds; it takes some milliseconds a process where no group counts it."""
    group = _memory_group(groups)
    if group is not None:
        name = _CURRENT if (group / _CURRENT).exists() else _CURRENT_1
        return HeldMemory(number(group / name), f"by {name}")
    return HeldMemory(sum(map(_mapped_bytes, processes)), "by the processes' mappings")


async def give_back(groups: Sequence[Path]) -> str:
    """Return to the machine what a paused sandbox can do without; say what that is, or why it is nothing."""
    group = _memory_group(groups)
    if group is None:
        return "nothing goes back: it has no control group of memory, which a memory limit makes"
    if not (group / _RECLAIM).exists() and not (group / _RECLAIM_1).exists():
        return f"nothing goes back: this kernel has no {_RECLAIM}"
    await asyncio.to_thread(_reclaim, group)
    if _has_swap():
        return "file cache and swappable memory go back"
    return "file cache goes back; what programs allocated stays, since the machine has no swap"


def _memory_group(groups: Iterable[Path]) -> Path | None:
    for group in groups:
        if (group / _CURRENT).exists() or (group / _CURRENT_1).exists():
            return group
    return None


def _reclaim(group: Path) -> None:
    if not (group / _RECLAIM).exists():
        for part in (group, *group.glob("*/")):
            with suppress(OSError):
                (part / _RECLAIM_1).write_text("0")
        return
    # While a sandbox runs its limit holds without swap; what is in swap stays there when that holds again.
    bounded = [file for file in group.glob(f"**/{_SWAP_MAX}") if _read(file) == "0"]
    _write_all(bounded, "max")
    try:
        _reclaim_steps(group)
    finally:
        _write_all(bounded, "0")


def _reclaim_steps(group: Path) -> None:
    ends = time.monotonic() + _MOST_SECONDS
    left = number(group / _CURRENT)
    while left > 0 and time.monotonic() < ends:
        try:
            (group / _RECLAIM).write_text(str(min(left, _STEP_BYTES)))
        except OSError:
            # EAGAIN: the kernel found less than that.
            return
        left -= _STEP_BYTES


def _write_all(files: Iterable[Path], text: str) -> None:
    for file in files:
        with suppress(OSError):
            file.write_text(text)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _has_swap() -> bool:
    return _read(Path("/proc/swaps")).count("\n") > 0


def _mapped_bytes(pid: int) -> int:
    for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        name, _, amount = line.partition(":")
        if name == "Pss":
            return int(amount.split()[0]) * 1024
    return 0


def outcome(before: HeldMemory, after: HeldMemory, note: str) -> sandbox_pb2.PauseMemory:
    """Return what the record of a pause has."""
    note = f"{before.measure}; {note}"
    return sandbox_pb2.PauseMemory(before_bytes=before.held_bytes, after_bytes=after.held_bytes, note=note)

"""The memory of a forked kernel, written to a memory file from which processes of other sandboxes continue it.

The kernel's process that forks others forks one more for it, which stops between two instructions while the first looks
at it from outside, then writes its pages to the file and ends. Behind the pages the file has the rest as JSON, and
eight bytes with the place of that. See `restore` for how a process becomes what is there.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from sandmeshd.agent.userland.core import syscall_table
from sandmeshd.agent.userland.core.syscall_table import PAGE, SyscallTable, call, system_call
from sandmeshd.agent.userland.core.syscalls import restartable_sequences
from sandmeshd.agent.userland.python import leftovers
from sandmeshd.agent.userland.python.memory.mappings import Mapping, mappings, own_pages

READ, WRITE, SIGACTION, PWRITE, EXIT_GROUP, ARCH_PRCTL, GET_ROBUST_LIST = 0, 1, 13, 18, 231, 158, 274
_GET_FS: Final = 0x1003
_TABLE_BYTES: Final = 8 << 20
_MOST_AT_ONCE: Final = 1 << 30
_MOST_SHARED: Final = 1 << 30
"""Bytes of memory that is mapped as shared, of which all pages are copied."""
_SIGNALS: Final = 64
_SIGNAL_BYTES: Final = 32
_NO_HEAP: Final = (1 << 64) - PAGE
"""An end of the heap from which none is larger."""
_THREAD_BYTES: Final = 2048
"""Of the C library's description of a thread, in which its id is."""


class Saved:
    """What `save` returns where the image was written."""

    def __init__(self, size: int) -> None:
        self.size = size


class Restored:
    """What `save` returns in a process that continues from the image: `message` is what that process was told."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.message = message


def save(image: int, most: int) -> Saved | Restored:
    """Write this process's memory, of at most so many bytes, to a memory file.

    Raises:
        OSError: It cannot be written, or has pieces that cannot be copied.
    """
    table = SyscallTable(_TABLE_BYTES, shared=True)
    stopped, stops = os.pipe2(os.O_CLOEXEC)
    waits, goes = os.pipe2(os.O_CLOEXEC)
    descriptors = list(_descriptors({image, stopped, stops, waits, goes}))
    mail = max(leftovers.descriptors()) + 1
    table.add([call(WRITE, stops, table.scratch, 1), call(READ, waits, table.scratch, 1)])
    thread = _thread()
    # Whatever continues has another end of the heap than the C library knows: from here on it is to map memory instead.
    heap_end = ctypes.c_void_p.in_dll(ctypes.PyDLL(None), "__curbrk")
    pid = os.fork()
    if pid == 0:
        heap_end.value = _NO_HEAP
        if table.run():
            return Restored(_message(mail))
        os._exit(1)
    try:
        os.close(stops)
        if not os.read(stopped, 1):
            raise OSError("the process that was to be copied ended")
        facts = {**thread, "thread_id": _thread_id_at(thread["fs"]), "descriptors": descriptors, "mail": mail}
        pieces = _Pieces(pid, table, image)
        described = pieces.described()
        if pieces.size > most:
            raise OSError(f"a copy has {pieces.size >> 20} MiB, and there is room for {most >> 20}")
        facts |= {"mappings": described, "registers": table.registers.hex(), "umask": _umask()}
        facts["directory"] = os.getcwd()  # noqa: PTH109 - pathlib is a slow import
        table.add([*pieces.calls, call(EXIT_GROUP, 0)])
        os.write(goes, b"1")
        _, status = os.waitpid(pid, 0)
        pid = 0
        if status:
            raise OSError("there is too little memory for a copy, or a limit of the size of files")
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for fd in (stopped, waits, goes):
            os.close(fd)
        syscall_table.unmap(table.address, _TABLE_BYTES)
    _write_facts(image, pieces.size, facts)
    return Saved(pieces.size)


class _Pieces:
    """The pieces of a stopped process's memory, and the calls with which it writes them."""

    def __init__(self, pid: int, table: SyscallTable, image: int) -> None:
        self._pid = pid
        self._table = table
        self._image = image
        self.calls: list[bytes] = []
        self.size = 0

    def described(self) -> list[dict[str, Any]]:
        """Return what the process has mapped, with the places of what it writes."""
        with open(f"/proc/{self._pid}/pagemap", "rb", buffering=0) as pagemap:  # noqa: PTH123 - as above
            found = mappings(self._pid)
            return [self._describe(one, pagemap) for one in found if one.start != self._table.address]

    def _describe(self, one: Mapping, pagemap: Any) -> dict[str, Any]:
        described: dict[str, Any] = {"start": one.start, "end": one.end, "access": one.access, "pieces": []}
        if one.is_kernels:
            return {**described, "name": one.path}
        file = _file_of(one)
        if file:
            described |= {"path": one.path, "offset": one.offset, "shared": one.shared, "bytes": file}
        if one.shared and not file and one.end - one.start > _MOST_SHARED:
            raise OSError(
                f"it shares {(one.end - one.start) >> 20} MiB of memory: at most {_MOST_SHARED >> 20} can be copied"
            )
        if one.access & 1 and not (file and one.shared):
            whole = one.shared or (one.path.startswith("/") and not file)
            ranges = [(one.start, one.end)] if whole else own_pages(pagemap, one)
            described["pieces"] = [self._write(start, end) for start, end in ranges]
        return described

    def _write(self, start: int, end: int) -> tuple[int, int, int]:
        place = self.size
        for at in range(start, end, _MOST_AT_ONCE):
            count = min(end - at, _MOST_AT_ONCE)
            self.calls.append(call(PWRITE, self._image, at, count, self.size))
            self.size += count
        return start, end, place


def _file_of(one: Mapping) -> int:
    """Return the size of the file that is mapped, 0 where another sandbox would not have it."""
    with suppress(OSError):
        found = os.stat(one.path) if one.path.startswith("/") else None  # noqa: PTH116 - as above
        if found is not None and found.st_ino == one.inode and stat.S_ISREG(found.st_mode):
            return found.st_size
    return 0


def _thread() -> dict[str, Any]:
    """Return what the kernel knows of this thread and its signals, which is not in memory."""
    fs, robust, size = (ctypes.c_ulong() for _ in range(3))
    system_call(ARCH_PRCTL, _GET_FS, ctypes.byref(fs))
    system_call(GET_ROBUST_LIST, 0, ctypes.byref(robust), ctypes.byref(size))
    action = ctypes.create_string_buffer(_SIGNAL_BYTES)
    actions = [
        (number, action.raw.hex())
        for number in range(1, _SIGNALS + 1)
        if system_call(SIGACTION, number, None, action, 8) == 0
    ]
    return {
        "fs": fs.value,
        "robust": (robust.value, size.value),
        "rseq": restartable_sequences(fs.value),
        "actions": actions,
    }


def _thread_id_at(fs: int) -> int:
    """Return where in its description of a thread the C library keeps the id, -1 where it is not found."""
    own = os.getpid()
    for at in range(0, _THREAD_BYTES, 4):
        if ctypes.c_int.from_address(fs + at).value == own:
            return at
    return -1


def _descriptors(left_out: set[int]) -> Iterator[tuple[int, str, int, int]]:
    """Yield the descriptors that processes which continue open again: number, path, flags, position."""
    for fd in leftovers.descriptors():
        if fd > 2 and fd not in left_out:
            with suppress(OSError):
                mode = os.fstat(fd).st_mode
                regular = stat.S_ISREG(mode)
                known = regular or stat.S_ISDIR(mode) or stat.S_ISCHR(mode)
                position = os.lseek(fd, 0, os.SEEK_CUR) if regular else 0
                yield fd, leftovers.target_of(fd) if known else "", leftovers.flags_of(fd), position


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write_facts(image: int, place: int, facts: dict[str, Any]) -> None:
    place += -place % PAGE
    data = json.dumps(facts).encode("utf-8", "surrogateescape") + place.to_bytes(8, "little")
    os.ftruncate(image, place)
    os.lseek(image, place, os.SEEK_SET)
    while data:
        data = data[os.write(image, data) :]


def _message(mail: int) -> dict[str, Any]:
    data = os.pread(mail, 1 << 24, 0)
    os.close(mail)
    message: dict[str, Any] = json.loads(data)
    return message

"""A process of user code becomes what `image` saved: another process's memory, copied when it is written.

It opens the files that are mapped there, puts its own descriptors into place, and then runs a table of system calls
that replaces all of its memory. Nothing that comes of a damaged or forged image is more than user code of this sandbox
can do anyway.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import signal
import socket
from contextlib import suppress
from typing import Any, Final, NoReturn

from sandmeshd.agent.userland.core.syscall_table import PAGE, SyscallTable, call, system_call
from sandmeshd.agent.userland.core.syscalls import RSEQ_SIGNATURE, restartable_sequences
from sandmeshd.agent.userland.python.memory import image as memory_image
from sandmeshd.agent.userland.python.memory.mappings import Mapping, mappings

_MMAP, _MUNMAP, _SIGPROCMASK, _MREMAP, _RSEQ, _CLOSE_RANGE = 9, 11, 14, 25, 334, 436
_SET_ROBUST_LIST, _SET_TID_ADDRESS = 273, 218
_SET_FS, _GET_FS = 0x1002, 0x1003
_MOVE: Final = 3
"""MREMAP_MAYMOVE and MREMAP_FIXED."""
_LOWEST, _HIGHEST = 0x10000, (1 << 47) - PAGE
_FIXED, _PRIVATE, _ANONYMOUS, _UNRESERVED = 0x10, mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS, 0x4000
_LARGEST_FACTS: Final = 64 << 20


class MemoryRestore:
    """One process that becomes what an image holds."""

    def __init__(self, image: int) -> None:
        """Read the image.

        Raises:
            ValueError: It is not whole.
        """
        size = os.fstat(image).st_size
        place = int.from_bytes(os.pread(image, 8, size - 8), "little") if size > 8 else 0
        if not 0 <= size - 8 - place <= _LARGEST_FACTS:
            raise ValueError("the image is not whole")
        self._facts: dict[str, Any] = json.loads(os.pread(image, size - 8 - place, place))
        self._image = image
        self._files: dict[tuple[str, bool], int] = {}
        self._lowest: int = 1 + max(
            [2, *(descriptor[0] for descriptor in self._facts["descriptors"]), self._facts["mail"]]
        )

    def run(self, kept: list[int], message: dict[str, Any]) -> NoReturn:
        """Become it, and pass a message on with the numbers of the descriptors that are `kept`.

        Raises:
            OSError: A file or memory that it needs is not there.
        """
        facts = self._facts
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.chdir(facts["directory"])
        os.umask(facts["umask"])
        self._image = self._above(self._image)
        kept = [self._above(fd) for fd in kept]
        self._open_files()
        self._open_descriptors()
        table = self._table()
        message = {**message, "kept": kept, "table": [table.address, table.size]}
        self._mail({**message, "thread": [facts["fs"], facts["thread_id"]]})
        beyond = fcntl.fcntl(self._image, fcntl.F_DUPFD_CLOEXEC, max(self._lowest, *kept) + 1)
        table.add(self._calls(table, beyond, kept))
        table.resume(bytes.fromhex(facts["registers"]))
        table.run()
        raise OSError("the memory was not replaced")

    def _above(self, fd: int) -> int:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, self._lowest)

    def _open_files(self) -> None:
        for one in self._facts["mappings"]:
            if "path" in one:
                shared = one["shared"] and bool(one["access"] & mmap.PROT_WRITE)
                key = one["path"], shared
                if key not in self._files:
                    fd = os.open(one["path"], (os.O_RDWR if shared else os.O_RDONLY) | os.O_CLOEXEC)
                    self._files[key] = self._above(fd)
                    os.close(fd)
                    if os.fstat(self._files[key]).st_size != one["bytes"]:
                        raise OSError(f"{one['path']} is another file here")

    def _open_descriptors(self) -> None:
        """Open again what the original had open; what cannot be is at its end."""
        os.closerange(3, self._lowest)
        ended, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        other.close()
        ended.shutdown(socket.SHUT_RD)
        closed = self._above(ended.fileno())
        ended.close()
        for fd, path, flags, position in self._facts["descriptors"]:
            if not (path and _reopen(fd, path, flags, position)):
                os.dup2(closed, fd, inheritable=False)
        os.close(closed)

    def _mail(self, message: dict[str, Any]) -> None:
        letter = os.memfd_create("message")
        os.write(letter, json.dumps(message).encode())
        os.dup2(letter, self._facts["mail"], inheritable=False)
        if letter != self._facts["mail"]:
            os.close(letter)

    def _table(self) -> SyscallTable:
        """Map the table where neither this process nor the saved one has anything."""
        own = mappings("self")
        pieces = sum(2 + len(mapping["pieces"]) for mapping in self._facts["mappings"])
        size = (pieces + 512) * 64 + 3 * PAGE
        # What the kernel has mapped goes behind the table, while it is moved.
        size += -size % PAGE + sum(one.end - one.start for one in own if one.is_kernels)
        taken = [(one.start, one.end) for one in own]
        taken += [(mapping["start"], mapping["end"]) for mapping in self._facts["mappings"]]
        address = _LOWEST
        for start, end in sorted(taken):
            if start >= address + size:
                break
            address = max(address, end)
        return SyscallTable(size, address=address)

    def _calls(self, table: SyscallTable, beyond: int, kept: list[int]) -> list[bytes]:
        facts, own = self._facts, mappings("self")
        fs = ctypes.c_ulong()
        system_call(memory_image.ARCH_PRCTL, _GET_FS, ctypes.byref(fs))
        calls = _rseq(restartable_sequences(fs.value), 1)
        area = table.address, table.address + table.size
        kernels, moves = _kernels(own, [mapping for mapping in facts["mappings"] if "name" in mapping], table)
        calls += [*_cleared([area, *kernels]), *moves]
        for one in facts["mappings"]:
            if "name" not in one:
                calls += self._mapped(one)
        for number, action in facts["actions"]:
            calls.append(call(memory_image.SIGACTION, number, table.place(bytes.fromhex(action)), 0, 8, may_fail=True))
        calls.append(call(memory_image.ARCH_PRCTL, _SET_FS, facts["fs"]))
        calls.append(call(_SET_ROBUST_LIST, *facts["robust"]))
        calls += [call(_SET_TID_ADDRESS, facts["fs"] + at) for at in [facts["thread_id"]] if at >= 0]
        calls += _rseq(facts["rseq"], 0)
        calls += self._closed(beyond, kept)
        return [*calls, call(_SIGPROCMASK, signal.SIG_SETMASK, table.place(bytes(8)), 0, 8)]

    def _mapped(self, one: dict[str, Any]) -> list[bytes]:
        start, size, access = one["start"], one["end"] - one["start"], one["access"]
        if "path" in one:
            kind = mmap.MAP_SHARED if one["shared"] else _PRIVATE
            fd = self._files[one["path"], one["shared"] and bool(access & mmap.PROT_WRITE)]
            calls = [call(_MMAP, start, size, access, _FIXED | kind, fd, one["offset"])]
        else:
            calls = [call(_MMAP, start, size, access, _FIXED | _PRIVATE | _ANONYMOUS | _UNRESERVED, -1, 0)]
        for begin, end, place in one["pieces"]:
            calls.append(call(_MMAP, begin, end - begin, access, _FIXED | _PRIVATE, self._image, place))
        return calls

    def _closed(self, beyond: int, kept: list[int]) -> list[bytes]:
        """Close everything above the original's descriptors, but those kept."""
        calls: list[bytes] = []
        low = self._lowest
        for fd in [*sorted(kept), beyond + (1 << 20)]:
            if fd > low:
                calls.append(call(_CLOSE_RANGE, low, fd - 1, 0))
            low = fd + 1
        return calls


def _reopen(fd: int, path: str, flags: int, position: int) -> bool:
    with suppress(OSError):
        found = os.open(path, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC) | os.O_CLOEXEC)
        if position:
            os.lseek(found, position, os.SEEK_SET)
        if found != fd:
            os.dup2(found, fd, inheritable=not flags & os.O_CLOEXEC)
            os.close(found)
        return True
    return False


def _rseq(registered: Any, flags: int) -> list[bytes]:
    address, size = registered
    return [call(_RSEQ, address, size, flags, RSEQ_SIGNATURE)] if address else []


def _cleared(kept: list[tuple[int, int]]) -> list[bytes]:
    """Unmap everything but what is kept."""
    calls: list[bytes] = []
    low = _LOWEST
    for start, end in [*sorted(kept), (_HIGHEST, _HIGHEST)]:
        if start > low:
            calls.append(call(_MUNMAP, low, start - low))
        low = end
    return calls


def _kernels(
    own: list[Mapping], saved: list[dict[str, Any]], table: SyscallTable
) -> tuple[list[tuple[int, int]], list[bytes]]:
    """Return what the kernel has mapped here, and the calls that move it to where the original had it.

    Raises:
        OSError: It is not the same.
    """
    here = [(one.path, one.start, one.end - one.start) for one in own if one.is_kernels]
    there = {one["name"]: one["start"] for one in saved}
    if {(name, size) for name, _, size in here} != {(one["name"], one["end"] - one["start"]) for one in saved}:
        raise OSError("the kernel of this machine has changed")
    away: list[bytes] = []
    back: list[bytes] = []
    for name, start, size in here:
        if start != there[name]:
            # By way of another place, since one may be where the other goes.
            table.size -= size
            place = table.address + table.size
            away.append(call(_MREMAP, start, size, size, _MOVE, place))
            back.append(call(_MREMAP, place, size, size, _MOVE, there[name]))
    return [(start, start + size) for _, start, size in here], [*away, *back]

"""A table of system calls that a few machine instructions make, one after another, without touching other memory.

What saves a process's memory, or replaces it by another's, cannot be Python, which lives in that memory. The
instructions first save the registers that a C function keeps for its caller; they end by restoring those, or other
ones that were saved so. A system call that fails ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Sequence
from typing import Any, Final

SUPPORTED: Final = os.uname().machine == "x86_64"
"""Whether there are instructions for this machine's processor."""
PAGE: Final = 4096
ENTRY: Final = struct.Struct("<qQQQQQQQ")
"""A system call: its number, six arguments, and the least result that counts as a failure."""
REGISTERS: Final = 64
"""The bytes of the saved registers."""

_INSTRUCTIONS: Final = bytes.fromhex(
    # run(rdi: table, rsi: where the registers are saved): rsp, rbx, rbp, r12, r13, r14, r15, and the return address
    "488926 48895e08 48896e10 4c896618 4c896e20 4c897628 4c897e30 488b0424 48894638 4989f4 4889fb"
    # next: the number, or the end of the table
    "488b03 4885c0 7834"
    # the arguments, the call, and a look at its result
    "488b7b08 488b7310 488b5318 4c8b5320 4c8b4328 4c8b4b30 0f05 483b4338 720e"
    # it failed: exit_group(number + 100)
    "488b3b 488d7f64 b8e7000000 0f05"
    # on to the next
    "4883c340 ebc4"
    # the end: -1 returns 0 with the registers of before, everything else 1 with those at an address
    "4883f8ff 7409 4c8b6308 ba01000000 eb02 31d2"
    "4c89e7 488b27 488b5f08 488b6f10 4c8b6718 4c8b6f20 4c8b7728 4c8b7f30 89d0 c3"
)
_REGISTERS_AT, _SCRATCH_AT, _TABLE_AT = 1024, 2048, PAGE
_FAILED: Final = (1 << 64) - 4095
_NEVER: Final = (1 << 64) - 1
_RESUME: Final = -2
_FIXED: Final = 0x100000
"""MAP_FIXED_NOREPLACE."""

_libc: Any = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.syscall.restype = ctypes.c_long


def call(number: int, *arguments: int, may_fail: bool = False) -> bytes:
    """Return a table's entry for a system call; one that may fail still ends the process if it is not permitted."""
    padded = [argument & _NEVER for argument in (*arguments, 0, 0, 0, 0, 0, 0)][:6]
    return ENTRY.pack(number, *padded, _NEVER if may_fail else _FAILED)


def system_call(number: int, *arguments: Any) -> int:
    """Make a system call that the C library has no function for, and return its result."""
    return int(
        _libc.syscall(
            ctypes.c_long(number),
            *(ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments),
        )
    )


class SyscallTable:
    """The instructions and their table, in separate memory."""

    def __init__(self, size: int, *, address: int = 0, shared: bool = False) -> None:
        """Map so many bytes, at an address that is free where one is named; with `shared` forks have the same ones.

        Raises:
            OSError: The memory cannot be had.
        """
        self.size = size
        flags = mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE) | (_FIXED if address else 0)
        access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        found = _libc.mmap(address or None, size, access, flags, -1, 0)
        if found == _NEVER:
            number = ctypes.get_errno()
            raise OSError(number, f"mmap: {os.strerror(number)}")
        self.address: int = found
        self._filled = _TABLE_AT
        ctypes.memmove(found, _INSTRUCTIONS, len(_INSTRUCTIONS))

    @property
    def registers(self) -> bytes:
        """The registers that `run` saved."""
        return ctypes.string_at(self.address + _REGISTERS_AT, REGISTERS)

    @property
    def scratch(self) -> int:
        """The address of some bytes that system calls may write to."""
        return self.address + _SCRATCH_AT

    def add(self, entries: Sequence[bytes]) -> None:
        """Append entries, which may be taken by a process that runs the table already.

        Raises:
            OSError: The table is full.
        """
        data = b"".join(entries)
        if self._filled + len(data) + ENTRY.size > self.size:
            raise OSError("the process has more pieces of memory than can be copied")
        ctypes.memmove(self.address + self._filled, data, len(data))
        self._filled += len(data)

    def place(self, data: bytes) -> int:
        """Copy data to the end of the memory, and return its address; the table has that much less room."""
        self.size -= len(data) + -len(data) % 16
        ctypes.memmove(self.address + self.size, data, len(data))
        return self.address + self.size

    def resume(self, registers: bytes) -> None:
        """End the table with a return to where these registers were saved."""
        at = self.place(registers)
        self.add([ENTRY.pack(_RESUME, at, 0, 0, 0, 0, 0, 0)])

    def run(self) -> bool:
        """Make the calls. Returns: whether another table resumed here."""
        run = ctypes.PYFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)(self.address)
        return bool(run(self.address + _TABLE_AT, self.address + _REGISTERS_AT))


def unmap(address: int, size: int) -> None:
    """Unmap memory."""
    _libc.munmap(address, size)

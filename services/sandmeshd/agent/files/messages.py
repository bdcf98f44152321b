"""How file tools speak of names and of what the system refuses."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sandmeshd.agent.calls.answer import ToolFailure

_WORDS: Final = {
    errno.ENOENT: "it is not there; list_directory shows what is",
    errno.EEXIST: "it exists already",
    errno.EACCES: "its permissions do not allow that; run_shell_command can change them with chmod",
    errno.EPERM: "that is not permitted on it",
    errno.EISDIR: "it is a directory, not a file; list_directory lists it",
    errno.ENOTDIR: "it, or a part of its path, is a file and not a directory",
    errno.ELOOP: "its path goes through too many symbolic links, or through one that may not be followed",
    errno.ENAMETOOLONG: "it is too long: a name holds 255 bytes, a path 4095",
    errno.ENOSPC: "the disk is full; remove what is not needed and try again",
    errno.EDQUOT: "the disk quota is used up; remove what is not needed and try again",
    errno.EFBIG: "the file would be larger than files may be here",
    errno.EROFS: "it is on a read-only file system",
    errno.ENXIO: "it is not a regular file but a FIFO, socket or device",
    errno.EXDEV: "it is on another file system; run_shell_command can copy it with cp or mv",
    errno.EINVAL: "a directory cannot be moved into itself",
    errno.EBUSY: "it is in use by the system",
    errno.EAGAIN: "the directories above it keep changing; try again when they do not",
    errno.ENOSYS: "this kernel cannot confine paths: Linux 5.6 or newer is needed",
}


def show(name: str) -> str:
    """Return a name as one line of text: as it is, or quoted as $'...' so that bash reads it back.

    Names are bytes: those that are not UTF-8 cannot be written in JSON, but a shell command can name them in this form.
    """
    if name.isprintable() and not name.startswith("$'"):
        return name
    return f"$'{''.join(map(_quoted, name))}'"


def _quoted(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    if character.isprintable():
        return character
    undecoded = "\udc80" <= character <= "\udcff"
    data = character.encode("utf-8", "surrogateescape" if undecoded else "surrogatepass")
    return "\\n" if data == b"\n" else "".join(f"\\x{byte:02x}" for byte in data)


@contextmanager
def explained(path: str) -> Generator[None]:
    """Turn what the system says about a path into a ToolFailure in plain words."""
    try:
        yield
    except OSError as error:
        words = _WORDS.get(error.errno or 0) or error.strerror or str(error)
        raise ToolFailure(f"{show(path)}: {words}.") from None

"""Files of this machine that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def landed(path: str, mode: int) -> Generator[BinaryIO]:
    """Give a file that takes the place of `path` at the block's end; an exception leaves what was there.

    Raises:
        OSError: The directory takes no file, or `path` is a directory.
    """
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a directory: name the file in it")
    temporary = target.with_name(f".sandmesh-{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            os.fchmod(file.fileno(), mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise

"""Programs that adapters run to their end in a sandbox."""

from __future__ import annotations

import asyncio
import errno
import io
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandmesh import ProcessAsync, SandboxAsync, SandmeshError
from sandmesh.events import Output, Result

MOST_OUTPUT: Final = 16 << 20
"""Bytes of each of a program's streams that are kept."""
MOST_DATA: Final = 1 << 30
"""Bytes that a script may return."""
_INPUT_CHUNK: Final = 256 * 1024
_UNPACK: Final = 'mkdir -p -- "$1" && tar -xf - -C "$1"'
# As a copy: into a directory that exists, under the file's own name.
_UNPACK_FILE: Final = """\
if [ -d "$1" ]; then folder=$1 name=$2; else folder=$(dirname -- "$1") name=$(basename -- "$1"); fi
mkdir -p -- "$folder" && made=$(mktemp -d) && tar -xf - -C "$made" || exit
mv -f -- "$made/$2" "$folder/$name" && rmdir "$made"
"""


@dataclass(frozen=True)
class Ended:
    """How a program ended, and what it wrote; of a longer stream the beginning, and a line with what was left out."""

    result: Result
    stdout: bytes
    stderr: bytes


async def run_program(
    box: SandboxAsync,
    arguments: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    data: bytes = b"",
) -> Ended:
    """Run a program with its arguments; `data` is its input. It is killed after `timeout` seconds.

    Raises:
        SandmeshError: The sandbox is gone, or an argument does not fit.
    """
    streams = {"stdout": _BoundedOutput(MOST_OUTPUT), "stderr": _BoundedOutput(MOST_OUTPUT)}
    result = await _run(box, arguments, streams, cwd=cwd, env=dict(env) if env else None, timeout=timeout, data=data)
    return Ended(result, streams["stdout"].text(), streams["stderr"].text())


class _BoundedOutput:
    """The beginning of a stream, and how much followed."""

    def __init__(self, most: int, *, refuses: bool = False) -> None:
        self.data = bytearray()
        self._most = most
        self._refuses = refuses
        self._more = 0

    def add(self, data: bytes) -> None:
        kept = data[: self._most - len(self.data)]
        self.data += kept
        self._more += len(data) - len(kept)
        if self._more and self._refuses:
            raise OSError(errno.EFBIG, f"it has more than {self._most} bytes")

    def text(self) -> bytes:
        note = f"\n[{self._more} further bytes were left out]\n" if self._more else ""
        return bytes(self.data) + note.encode()


async def _run(
    box: SandboxAsync, arguments: Sequence[str], streams: Mapping[str, _BoundedOutput], *, data: bytes, **options: Any
) -> Result:
    async with await box.processes.start(arguments, **options) as process:
        feeding = asyncio.create_task(_feed(process, data))
        try:
            async for event in process:
                if isinstance(event, Output):
                    streams[event.stream].add(event.data)
            return await process.wait()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


async def run_script(box: SandboxAsync, script: str, *arguments: str, data: bytes = b"") -> bytes:
    """Run a script of the shell with arguments, and return what it wrote: at most MOST_DATA bytes.

    Raises:
        OSError: It failed, or wrote more; FileNotFoundError: for a file that is not there.
        SandmeshError: The sandbox is gone.
    """
    streams = {"stdout": _BoundedOutput(MOST_DATA, refuses=True), "stderr": _BoundedOutput(MOST_OUTPUT)}
    result = await _run(box, ["/bin/sh", "-c", script, "sh", *arguments], streams, data=data)
    if result.is_error:
        said = streams["stderr"].text().decode(errors="replace").strip() or result.message
        kind = FileNotFoundError if "No such file" in said else OSError
        raise kind(said)
    return bytes(streams["stdout"].data)


async def upload(box: SandboxAsync, source: Path, target: str) -> None:
    """Copy a file of this machine to `target`, or into it if that is a directory; of a directory all that is in it.

    Raises:
        OSError: It cannot be read here, or not be written there.
        SandmeshError: The sandbox is gone.
    """
    packed, script = await asyncio.to_thread(_pack, source)
    await run_script(box, script, target, source.name, data=packed)


def _pack(source: Path) -> tuple[bytes, str]:
    """Return an archive of a file or directory, and the script that unpacks it."""
    packed, whole = io.BytesIO(), source.is_dir()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, arcname="." if whole else source.name)
    return packed.getvalue(), _UNPACK if whole else _UNPACK_FILE


async def _feed(process: ProcessAsync, data: bytes) -> None:
    # Ending without reading all of the input is not a failure.
    with suppress(SandmeshError):
        for start in range(0, len(data), _INPUT_CHUNK):
            await process.write(data[start : start + _INPUT_CHUNK])
        await process.close_stdin()

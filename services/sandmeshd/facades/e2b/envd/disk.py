"""Files of a sandbox at any path: those of its workspace by the file tools, others by a small program inside."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any, Final

from sandmesh import SandboxAsync
from sandmesh.events import Output
from sandmesh.files import FileInfo, read_info
from sandmeshd.facades.e2b.envd.paths import in_workspace
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.replies import result_of

_PROGRAM: Final = """
import json, os, shutil, stat, sys
def info(path, name, follow=False):
    found = os.stat(path) if follow else os.lstat(path)
    mode = found.st_mode
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink"))
    kind = next((kind for test, kind in kinds if test(mode)), "other")
    target = os.readlink(path) if kind == "symlink" else None
    return dict(path=name, type=kind, size=found.st_size, mode=stat.S_IMODE(mode), mtime_ns=found.st_mtime_ns,
                links=found.st_nlink, target=target, attributes=attributes(path) if kind == "file" else dict())
def attributes(path):
    try:
        names = [name for name in os.listxattr(path) if name.startswith("user.e2b.")]
        return {name[5:]: os.fsdecode(os.getxattr(path, name)) for name in names}
    except OSError:
        return dict()
def led(path):
    real = os.path.realpath(path)
    if not os.path.lexists(real) or os.path.islink(real):
        return dict(path=path, type="symlink")
    return dict(path=real, type=info(real, real)["type"])
def listed(top, below, depth):
    for name in sorted(os.listdir(os.path.join(top, below))):
        path = os.path.join(below, name)
        one = info(os.path.join(top, path), path)
        yield one
        if one["type"] == "directory" and depth > 1:
            yield from listed(top, path, depth - 1)
def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)
def move(source, destination):
    os.makedirs(os.path.dirname(destination) or "/", exist_ok=True)
    shutil.move(source, destination)
def mark(path, values):
    for name in os.listxattr(path):
        if name.startswith("user.e2b."):
            os.removexattr(path, name)
    for name, value in values.items():
        os.setxattr(path, "user.e2b." + name, value.encode())
acts = dict(mark=mark, led=lambda paths: [led(path) for path in paths],
            stat=lambda path, follow: info(path, path, follow), list=lambda path, depth: list(listed(path, "", depth)),
            mkdir=lambda path: os.makedirs(path, exist_ok=True), remove=remove, move=move)
name, arguments = json.loads(sys.argv[1])
try:
    answer = dict(result=acts[name](*arguments))
except OSError as error:
    answer = dict(errno=error.errno, message=error.strerror)
print(json.dumps(answer))
"""
_NEEDS_PYTHON: Final = "files outside of the workspace need python3 in the image, which has none"
_NEVER_RAN: Final = (None, 127)
"""Exit codes of a program that is missing."""
_LINKS: Final = 16
"""How many links one program follows: the longest paths of so many fit one argument."""

_WRITE: Final = 'mkdir -p -- "${1%/*}/" && cat > "$1"'


async def stat(box: SandboxAsync, path: str, *, follow: bool) -> FileInfo:
    """Return what is known of a path.

    Raises:
        OSError: There is none, or it cannot be reached.
    """
    if in_workspace(path):
        return await box.fs.stat(path, follow=follow, attributes=True)
    return read_info(await _run(box, "stat", path, follow))


async def entries(box: SandboxAsync, path: str, depth: int) -> list[FileInfo]:
    """List a directory; the entries' paths are relative to it."""
    if in_workspace(path):
        return await box.fs.list(path, depth, attributes=True)
    return [read_info(one) for one in await _run(box, "list", path, depth)]


async def make_directory(box: SandboxAsync, path: str) -> None:
    """Make a directory and its parents."""
    if in_workspace(path):
        await box.fs.mkdir(path)
    else:
        await _run(box, "mkdir", path)


async def remove(box: SandboxAsync, path: str) -> None:
    """Remove a file or a directory with all in it; a missing one is fine."""
    if in_workspace(path):
        await box.fs.remove(path, recursive=True, missing_ok=True)
    else:
        await _run(box, "remove", path)


async def move(box: SandboxAsync, source: str, destination: str) -> None:
    """Rename a file or a directory."""
    if in_workspace(source) and in_workspace(destination):
        await box.fs.mkdir(destination.rpartition("/")[0])
        await box.fs.move(source, destination, replace=True)
    else:
        await _run(box, "move", source, destination)


async def read(box: SandboxAsync, path: str) -> AsyncGenerator[bytes]:
    """Yield a file's bytes."""
    if in_workspace(path):
        async with await box.fs.read(path, "stream") as stream:
            async for chunk in stream:
                yield chunk
        return
    async with await box.processes.start(["cat", "--", path]) as process:
        async for event in process:
            if isinstance(event, Output) and event.stream == "stdout":
                yield event.data
        if (await process.wait()).exit_code != 0:
            raise ApiError(500, f"{path} could not be read to its end")


async def write(box: SandboxAsync, path: str, chunks: AsyncIterable[bytes]) -> None:
    """Write a file and make its parents."""
    if in_workspace(path):
        await box.fs.write(path, chunks)
        return
    async with await box.processes.start(["/bin/sh", "-c", _WRITE, "sh", path]) as process:
        async for chunk in chunks:
            await process.write(chunk)
        await process.close_stdin()
        messages = b"".join([event.data async for event in process if isinstance(event, Output)])
        if (await process.wait()).exit_code != 0:
            raise ApiError(400, f"{path} could not be written: {messages.decode(errors='replace').strip()}")


async def mark(box: SandboxAsync, path: str, values: dict[str, str]) -> None:
    """Replace the metadata of a file that was written, which is in its extended attributes."""
    # A file of the workspace is a new one, without attributes.
    if values or not in_workspace(path):
        await _run(box, "mark", path, values)


async def follow_links(box: SandboxAsync, paths: list[str]) -> list[tuple[str, str]]:
    """Return where each link leads and the type of that; of one that leads nowhere its own path, and `symlink`."""
    found: list[tuple[str, str]] = []
    for at in range(0, len(paths), _LINKS):
        found += [(one["path"], one["type"]) for one in await _run(box, "led", paths[at : at + _LINKS])]
    return found


async def _run(box: SandboxAsync, name: str, *arguments: object) -> Any:
    command = ["python3", "-I", "-c", _PROGRAM, json.dumps([name, arguments])]
    async with await box.processes.start(command) as process:
        output = b"".join([event.data async for event in process if isinstance(event, Output)])
        ended = await process.wait()
    if not output and ended.exit_code in _NEVER_RAN:
        raise ApiError(400, f"{_NEEDS_PYTHON}: {arguments[0]}")
    return result_of(output, "the sandbox could not look at its files")

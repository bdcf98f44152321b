"""`sandmesh cp`: files and directories, into a sandbox and out of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from sandmesh import SandboxAsync
from sandmesh.errors import InvalidArgument
from sandmesh.files import FileInfo, Progressed
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.exit_codes import DENIED, FAILED, NOT_FOUND
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, Timeout
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)

Location = Annotated[str, typer.Argument(help="A local path, or SANDBOX:PATH.", show_default=False)]


@dataclass(frozen=True)
class FileCopy:
    """A copy between a local path and one in a sandbox."""

    sandbox_id: str
    local: str
    remote: str
    into_sandbox: bool


@commands.command(epilog="Example: sandmesh cp data.csv sb_...:data/ ; sandmesh cp sb_...:out ./out")
@grouped
def cp(
    source: Location,
    destination: Location,
    connection: ConnectionOptions,
    timeout: Timeout = 3000,
    output: Output = Format.TEXT,
) -> None:
    """Copy a file or directory into a sandbox or out of it. In an existing directory it keeps its own name."""
    copy = parse_copy(source, destination)
    box = connection.sandbox(copy.sandbox_id, timeout)
    try:
        asyncio.run(_copy(box, copy))
    except OSError as error:
        typer.echo(f"{error.strerror or error}", err=True)
        raise typer.Exit(_exit_code(error)) from None
    if output is Format.JSON:
        print_json({"source": source, "destination": destination})


def parse_copy(source: str, destination: str) -> FileCopy:
    """Find the side that is in a sandbox: SANDBOX:PATH, where SANDBOX has no slash.

    Raises:
        InvalidArgument: Neither is, or both are, or the other is `-`.
    """
    sides = [(name, path) for name, found, path in (side.partition(":") for side in (source, destination)) if found]
    remote = [(name, path) for name, path in sides if name and "/" not in name and name != "."]
    if len(remote) != 1:
        found = "both sides are" if remote else "neither side is"
        raise InvalidArgument(
            f"{found} in a sandbox: one must be SANDBOX:PATH, the other a local path (./a:b for one with a colon)"
        )
    name, path = remote[0]
    into = destination == f"{name}:{path}"
    if "-" in (source, destination):
        raise InvalidArgument(
            "- is not a local path: `sandmesh exec SANDBOX -- cat PATH` writes a file to standard output, and "
            "`sandmesh exec -i SANDBOX -- sh -c 'cat > PATH'` reads one from standard input; ./- is a file"
        )
    return FileCopy(name, source if into else destination, path or ".", into)


async def _copy(box: SandboxAsync, copy: FileCopy) -> None:
    async with box:
        with _byte_progress(_name(copy.local if copy.into_sandbox else copy.remote)) as bar:
            await (_upload(box, copy, bar) if copy.into_sandbox else _download(box, copy, bar))


async def _upload(box: SandboxAsync, copy: FileCopy, bar: Progressed) -> None:
    remote = copy.remote
    if remote.endswith("/") or await _is_directory(box, remote):
        remote = f"{remote.rstrip('/') or '/'}/{_name(copy.local)}"
    if await asyncio.to_thread(Path(copy.local).is_dir):
        await box.fs.upload_dir(copy.local, remote, progress=bar)
    else:
        await box.fs.write_from_path(copy.local, remote, progress=bar)


async def _download(box: SandboxAsync, copy: FileCopy, bar: Progressed) -> None:
    found: FileInfo = await box.fs.stat(copy.remote)
    local = copy.local
    if local.endswith("/") or await asyncio.to_thread(Path(local).is_dir):
        local = str(Path(local, _name(copy.remote)))
    if found.is_directory:
        await box.fs.download_dir(copy.remote, local, progress=bar)
    else:
        await box.fs.download_to(copy.remote, local, progress=bar)


async def _is_directory(box: SandboxAsync, path: str) -> bool:
    return await box.fs.exists(path) and (await box.fs.stat(path)).is_directory


def _name(path: str) -> str:
    # "." and ".." take the name of their directory, which only a local path tells.
    return Path(os.path.normpath(path)).name or Path(path).resolve().name


def _exit_code(error: OSError) -> int:
    if isinstance(error, FileNotFoundError):
        return NOT_FOUND
    return DENIED if isinstance(error, PermissionError) else FAILED


@contextmanager
def _byte_progress(label: str) -> Generator[Progressed]:
    """Yield a function of (bytes done, bytes in all) that a terminal shows as a bar."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)

"""`sandmesh cp`: files and directories into a sandbox and out of it."""

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
from sandmeshd.cli.terminal.exit_codes import DENIED, FAILED, NOT_FOUND
from sandmeshd.cli.terminal.mesh_option import Where
from sandmeshd.cli.terminal.mesh_selection import find_address
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Answer, Shape, Timeout
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)

Place = Annotated[str, typer.Argument(help="A path here, or SANDBOX:PATH.", show_default=False)]


@dataclass(frozen=True)
class Copy:
    """What goes where: one side is in the sandbox."""

    sandbox_id: str
    local: str
    inside: str
    into_sandbox: bool


@commands.command(epilog="Example: sandmesh cp data.csv sb_...:data/ ; sandmesh cp sb_...:out ./out")
@grouped
def cp(source: Place, destination: Place, where: Where, timeout: Timeout = 3000, output: Answer = Shape.TEXT) -> None:
    """Copy a file or directory into a sandbox or out of it. Into a directory that is there it goes by its own name."""
    copy = read_places(source, destination)
    box = SandboxAsync(
        copy.sandbox_id, timeout=timeout, base_url=find_address(where.base_url), bearer_token=where.token
    )
    try:
        asyncio.run(_copy(box, copy))
    except OSError as error:
        typer.echo(f"{error.strerror or error}", err=True)
        raise typer.Exit(_code(error)) from None
    if output is Shape.JSON:
        print_json({"source": source, "destination": destination})


def read_places(source: str, destination: str) -> Copy:
    """Find the side that is in a sandbox: SANDBOX:PATH, where what is before the colon has no slash.

    Raises:
        InvalidArgument: Neither is, or both are, or the other is `-`.
    """
    sides = [(name, path) for name, found, path in (side.partition(":") for side in (source, destination)) if found]
    inside = [(name, path) for name, path in sides if name and "/" not in name and name != "."]
    if len(inside) != 1:
        said = "both are" if inside else "neither is"
        raise InvalidArgument(f"one side is SANDBOX:PATH, the other a path here (./a:b for one with a colon); {said}")
    name, path = inside[0]
    into = destination == f"{name}:{path}"
    if "-" in (source, destination):
        raise InvalidArgument(
            "- is no place here: `sandmesh exec SANDBOX -- cat PATH` writes a file to standard output, and "
            "`sandmesh exec -i SANDBOX -- sh -c 'cat > PATH'` takes one from standard input; ./- is a file"
        )
    return Copy(name, source if into else destination, path or ".", into)


async def _copy(box: SandboxAsync, copy: Copy) -> None:
    async with box:
        with progress_of_bytes(_name(copy.local if copy.into_sandbox else copy.inside)) as bar:
            await (_into(box, copy, bar) if copy.into_sandbox else _out_of(box, copy, bar))


async def _into(box: SandboxAsync, copy: Copy, bar: Progressed) -> None:
    inside = copy.inside
    if inside.endswith("/") or await _is_directory(box, inside):
        inside = f"{inside.rstrip('/') or '/'}/{_name(copy.local)}"
    if await asyncio.to_thread(Path(copy.local).is_dir):
        await box.fs.upload_dir(copy.local, inside, progress=bar)
    else:
        await box.fs.write_from_path(copy.local, inside, progress=bar)


async def _out_of(box: SandboxAsync, copy: Copy, bar: Progressed) -> None:
    found: FileInfo = await box.fs.stat(copy.inside)
    local = copy.local
    if local.endswith("/") or await asyncio.to_thread(Path(local).is_dir):
        local = str(Path(local, _name(copy.inside)))
    if found.is_directory:
        await box.fs.download_dir(copy.inside, local, progress=bar)
    else:
        await box.fs.download_to(copy.inside, local, progress=bar)


async def _is_directory(box: SandboxAsync, path: str) -> bool:
    return await box.fs.exists(path) and (await box.fs.stat(path)).is_directory


def _name(path: str) -> str:
    # Of "." and ".." the name is that of the directory, which only a path of this machine tells.
    return Path(os.path.normpath(path)).name or Path(path).resolve().name


def _code(error: OSError) -> int:
    if isinstance(error, FileNotFoundError):
        return NOT_FOUND
    return DENIED if isinstance(error, PermissionError) else FAILED


@contextmanager
def progress_of_bytes(what: str) -> Generator[Progressed]:
    """Give what takes (bytes, of all); a terminal shows a bar of them."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)

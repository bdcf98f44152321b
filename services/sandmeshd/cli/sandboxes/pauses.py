"""Commands that pause and resume sandboxes, and that hold and restore states of them and of their Python kernels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandmesh.errors import SandmeshError
from sandmesh.mesh import SandboxInfo
from sandmeshd.cli.terminal.completion import complete_sandboxes
from sandmeshd.cli.terminal.connection import CALL_SECONDS, ConnectionOptions
from sandmeshd.cli.terminal.exit_codes import exit_code_of, print_error
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId
from sandmeshd.cli.terminal.output import print_json, print_table

if TYPE_CHECKING:
    from sandmesh.mesh import MeshAsync
    from sandmesh.sandbox.kernels import KernelMark
    from sandmesh.sandbox.session.marks import SandboxMark

commands = typer.Typer(rich_markup_mode=None)

SandboxIds = Annotated[
    list[str], typer.Argument(help="The sandboxes.", metavar="SANDBOX...", autocompletion=complete_sandboxes)
]
DEFAULT_KERNEL = "default"
KernelId = Annotated[str, typer.Option("--kernel", help="The Python kernel.", metavar="ID")]
MarkId = Annotated[
    str, typer.Argument(help="A mark, as `sandmesh mark` prints it.", metavar="MARK", show_default=False)
]


class Mode(StrEnum):
    """What a pause keeps."""

    MEMORY = "memory"
    FILES = "files"
    CHECKPOINT = "checkpoint"


Change = Callable[["MeshAsync", str], Awaitable[SandboxInfo]]


@commands.command(epilog="Examples: sandmesh pause sb_... | sandmesh pause $(sandmesh ls -l team=red -o id)")
@grouped
def pause(
    sandbox_ids: SandboxIds,
    connection: ConnectionOptions,
    mode: Annotated[
        Mode, typer.Option(help="memory freezes processes, files ends them, checkpoint writes memory to disk.")
    ] = Mode.MEMORY,
    output: Output = Format.TEXT,
) -> None:
    """Pause sandboxes until a request comes for them, or `sandmesh resume`; leases go on."""
    _change_all(connection, sandbox_ids, lambda mesh, one: mesh.sandboxes.pause(one, mode.value), output)


@commands.command(epilog="Example: sandmesh resume sb_...")
@grouped
def resume(sandbox_ids: SandboxIds, connection: ConnectionOptions, output: Output = Format.TEXT) -> None:
    """Resume paused sandboxes; running ones are left unchanged."""
    _change_all(connection, sandbox_ids, lambda mesh, one: mesh.sandboxes.resume(one), output)


@commands.command(
    epilog="Examples: mark=$(sandmesh mark --all sb_...) | sandmesh rewind sb_... $mark | "
    "sandmesh mark --drop $mark sb_..."
)
@grouped
def mark(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    kernel: KernelId = DEFAULT_KERNEL,
    everything: Annotated[
        bool, typer.Option("--all", help="Hold the workspace's files and all Python kernels, not one kernel.")
    ] = False,
    drop: Annotated[
        str | None, typer.Option("--drop", help="Drop this mark and free its memory.", metavar="MARK")
    ] = None,
    output: Output = Format.TEXT,
) -> None:
    """Hold the state of a Python kernel, its variables and modules, and print the id of the mark.

    It waits until the kernel's cells have ended. Files are not part of it, unless --all is given.
    """
    if everything or (drop is not None and _has_files(drop)):
        _refuse_kernel(kernel)
    held, kernels = run_command(_mark(connection, sandbox_id, None if everything else kernel, drop))
    if output is Format.JSON:
        print_json({"mark_id": held.mark_id, **kernels, "not_copied": list(held.not_copied)})
        return
    typer.echo(held.mark_id)
    for name in held.not_copied:
        typer.echo(f"not held: {name}", err=True)


@commands.command(epilog="Example: sandmesh rewind sb_... mark-1")
@grouped
def rewind(
    sandbox_id: SandboxId,
    mark_id: MarkId,
    connection: ConnectionOptions,
    kernel: KernelId = DEFAULT_KERNEL,
    output: Output = Format.TEXT,
) -> None:
    """Return a Python kernel to a mark, or the files and kernels to one that was made with --all.

    A running cell ends, and later variables are gone. The files stay as they are where the mark holds none.
    """
    if _has_files(mark_id):
        _refuse_kernel(kernel)
    run_command(_rewind(connection, sandbox_id, kernel, mark_id))
    if output is Format.JSON:
        print_json({"mark_id": mark_id, **({} if _has_files(mark_id) else {"kernel_id": kernel})})


def _change_all(connection: ConnectionOptions, sandbox_ids: list[str], change: Change, output: Format) -> None:
    """Change each sandbox that can be, print those, and exit with the last error's code."""
    changed, error = run_command(_change(connection, sandbox_ids, change))
    if output is Format.JSON:
        print_json([one.to_json() for one in changed])
    elif changed:
        print_table(("SANDBOX", "TEMPLATE", "STATE"), [(one.sandbox_id, one.template, one.state) for one in changed])
    if error is not None:
        raise typer.Exit(exit_code_of(error))


async def _change(
    connection: ConnectionOptions, sandbox_ids: list[str], change: Change
) -> tuple[list[SandboxInfo], SandmeshError | None]:
    changed: list[SandboxInfo] = []
    last_error: SandmeshError | None = None
    async with connection.mesh(CALL_SECONDS) as mesh:
        for sandbox_id in sandbox_ids:
            try:
                changed.append(await change(mesh, sandbox_id))
            except SandmeshError as error:
                last_error = error
                print_error(error)
    return changed, last_error


def _has_files(mark_id: str) -> bool:
    return mark_id.startswith("state-")


def _refuse_kernel(kernel_id: str) -> None:
    if kernel_id != DEFAULT_KERNEL:
        raise typer.BadParameter("a mark of all has every Python kernel: leave --kernel out")


async def _mark(
    connection: ConnectionOptions, sandbox_id: str, kernel_id: str | None, drop: str | None
) -> tuple[KernelMark | SandboxMark, dict[str, Any]]:
    """Hold or drop a mark; without a kernel, of the sandbox. Return it, and the kernels that it is of."""
    from sandmesh.sandbox.kernels import KernelMark  # noqa: PLC0415 - a command's help needs none of it
    from sandmesh.sandbox.session.marks import SandboxMark  # noqa: PLC0415

    async with connection.sandbox(sandbox_id) as box:
        if drop is not None and _has_files(drop):
            await box.drop(drop)
            return SandboxMark(drop), {}
        if drop is None and kernel_id is None:
            made = await box.mark()
            return made, {"kernels": [one.kernel_id for one in made.kernels]}
        kernel = await box.kernels.get(kernel_id or DEFAULT_KERNEL)
        if drop is None:
            return await kernel.mark(), {"kernel_id": kernel.id}
        dropped = KernelMark(drop, kernel.id)
        await kernel.drop(dropped)
        return dropped, {"kernel_id": kernel.id}


async def _rewind(connection: ConnectionOptions, sandbox_id: str, kernel_id: str, mark_id: str) -> None:
    from sandmesh.sandbox.kernels import KernelMark  # noqa: PLC0415 - a command's help needs none of it

    async with connection.sandbox(sandbox_id) as box:
        if _has_files(mark_id):
            await box.rewind(mark_id)
        else:
            await (await box.kernels.get(kernel_id)).rewind(KernelMark(mark_id, kernel_id))

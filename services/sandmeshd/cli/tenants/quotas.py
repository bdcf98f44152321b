"""Commands on the quotas of projects and users."""

from __future__ import annotations

from typing import Annotated

import typer

from sandmesh.mesh import QuotaInfo
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Json, ListFormat, ListOutput, Output, parse_pairs
from sandmeshd.cli.terminal.output import print_ids_or_json, print_json, print_table

NAMES = (
    "sandboxes", "memory", "cpus", "creates_per_minute", "snapshot_bytes", "exposed_ports", "calls_in_flight",
    "paused_sandboxes",
)  # fmt: skip

Project = Annotated[str, typer.Option(help="The project.", metavar="NAME", show_default=False)]
User = Annotated[str, typer.Option(help="The user.", metavar="USER_ID", show_default=False)]

commands = typer.Typer(
    help="Manage the quotas of projects and users; for administrators.", no_args_is_help=True, rich_markup_mode=None
)


@commands.command(epilog="Examples: sandmesh quota show | sandmesh quota show --project research -o json")
@grouped
def show(
    connection: ConnectionOptions,
    project: Project = "",
    user: User = "",
    output: ListOutput = ListFormat.TABLE,
    as_json: Json = False,
) -> None:
    """Show what projects and users have in use, and their limits."""
    quotas = run_command(_list(connection))
    if project or user:
        quotas = [quota for quota in quotas if (quota.project, quota.user_id) == (project, user)]
    list_format = ListFormat.JSON if as_json else output
    if not print_ids_or_json(list_format, quotas, (quota.project or quota.user_id for quota in quotas)):
        headings = ("NAME", "KIND", *(name.replace("_", " ").upper() for name in NAMES), "USERS")
        print_table(headings, [_row(quota) for quota in quotas])


@commands.command(
    "set",
    epilog="Examples: sandmesh quota set --project research sandboxes=10 memory=64GiB | "
    "sandmesh quota set --user ada creates_per_minute=30 cpus=none",
)
@grouped
def set_limits(
    limits: Annotated[
        list[str],
        typer.Argument(
            help="sandboxes, memory, cpus, creates_per_minute, snapshot_bytes, exposed_ports, calls_in_flight or "
            "paused_sandboxes; none removes one.",
            metavar="NAME=VALUE...",
        ),
    ],
    connection: ConnectionOptions,
    project: Project = "",
    user: User = "",
    output: Output = Format.TEXT,
) -> None:
    """Set limits of a project or a user, effective immediately; lowering a limit does not evict running sandboxes."""
    if bool(project) == bool(user):
        raise typer.BadParameter("a quota is a project's or a user's: pass --project or --user")
    changes = {name: None if value == "none" else value for name, value in parse_pairs(limits).items()}
    quota = run_command(_set(connection, changes, project, user))
    if output is Format.JSON:
        print_json(quota.to_json())
        return
    held = ", ".join(f"{name}={_amount(name, value)}" for name, value in quota.limits.items()) or "no limits"
    typer.echo(f"{project or user}: {held}")


@commands.command(epilog="Examples: sandmesh quota assign ada research | sandmesh quota assign ada default")
@grouped
def assign(
    user: Annotated[str, typer.Argument(help="The user.", metavar="USER_ID")],
    project: Annotated[str, typer.Argument(help="The project; default is everybody's.", metavar="PROJECT")],
    connection: ConnectionOptions,
    output: Output = Format.TEXT,
) -> None:
    """Assign a user to a project; the user's sandboxes go on counting where they were claimed."""
    run_command(_assign(connection, user, project))
    if output is Format.JSON:
        print_json({"user_id": user, "project": project})
        return
    typer.echo(f"{user} belongs to {project}")


async def _list(connection: ConnectionOptions) -> list[QuotaInfo]:
    async with connection.mesh() as mesh:
        return await mesh.quotas.list()


async def _set(connection: ConnectionOptions, limits: dict[str, str | None], project: str, user: str) -> QuotaInfo:
    async with connection.mesh() as mesh:
        return await mesh.quotas.set(limits, project=project, user_id=user)


async def _assign(connection: ConnectionOptions, user: str, project: str) -> None:
    async with connection.mesh() as mesh:
        await mesh.quotas.assign(user, project)


def _row(quota: QuotaInfo) -> tuple[str, ...]:
    kind = "project" if quota.project else "user"
    return quota.project or quota.user_id, kind, *(_cell(quota, name) for name in NAMES), ", ".join(quota.user_ids)


def _cell(quota: QuotaInfo, name: str) -> str:
    used = _amount(name, quota.use.get(name, 0))
    return f"{used} of {_amount(name, quota.limits[name])}" if name in quota.limits else used


def _amount(name: str, value: float) -> str:
    return f"{value / 2**20:.0f}MiB" if name in ("memory", "snapshot_bytes") else f"{value:g}"

"""`sandmesh audit`: who changed what, and who was refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from sandmesh.mesh import AuditEntry
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, parse_duration
from sandmeshd.cli.terminal.output import escape_controls

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class AuditFilters:
    """Which entries are printed."""

    user: Annotated[str, typer.Option(help="Only of this user.", metavar="USER_ID", show_default=False)] = ""
    sandbox: Annotated[str, typer.Option(help="Only of this sandbox.", metavar="SANDBOX", show_default=False)] = ""
    method: Annotated[
        str, typer.Option(help="Only of this RPC, like CreateToken.", metavar="NAME", show_default=False)
    ] = ""
    outcome: Annotated[
        str, typer.Option(help="Only with this outcome: OK, or an error's reason.", metavar="NAME", show_default=False)
    ] = ""
    since: Annotated[
        str, typer.Option(help="Only of the last while, like 30d, 12h or 90m.", metavar="TIME", show_default=False)
    ] = ""

    @property
    def oldest(self) -> datetime | None:
        """The time from which on entries are printed."""
        if not self.since:
            return None
        return datetime.now(UTC) - timedelta(seconds=parse_duration(self.since, "--since"))


@commands.command(
    epilog="Examples: sandmesh audit | sandmesh audit --user ada --since 1d | sandmesh audit --outcome UNAUTHENTICATED"
)
@grouped
def audit(
    connection: ConnectionOptions,
    filters: AuditFilters,
    tail: Annotated[int, typer.Option(min=1, max=1000, help="How many of the newest.", metavar="COUNT")] = 100,
    output: Output = Format.TEXT,
) -> None:
    """Print who changed what, and who was refused: a line each, JSON lines with -o json; for administrators."""
    for entry in run_command(_read(connection, filters, filters.oldest, tail)):
        typer.echo(json.dumps(entry.to_json(), ensure_ascii=False) if output is Format.JSON else _line(entry))


async def _read(
    connection: ConnectionOptions, filters: AuditFilters, since: datetime | None, limit: int
) -> list[AuditEntry]:
    async with connection.mesh() as mesh:
        return await mesh.audit.list(
            user_id=filters.user,
            sandbox_id=filters.sandbox,
            method=filters.method,
            outcome=filters.outcome,
            since=since,
            limit=limit,
        )


def _line(entry: AuditEntry) -> str:
    when = entry.time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    who = entry.user_id or entry.scope or "nobody"
    about = [*entry.sandbox_ids, *(f"{name}={value}" for name, value in sorted(entry.details.items()))]
    words = [f"{who} at {entry.peer}", entry.method, entry.outcome, " ".join(about)]
    return escape_controls("  ".join([when, *words]).rstrip())

"""The command on the templates of a mesh."""

from __future__ import annotations

import typer

from sandmesh.mesh import TemplateInfo
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import ListFormat, ListOutput
from sandmeshd.cli.terminal.output import print_ids_or_json, print_table

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Examples: sandmesh templates | sandmesh templates -o json | sandmesh templates -o wide")
@grouped
def templates(connection: ConnectionOptions, output: ListOutput = ListFormat.TABLE) -> None:
    """List the templates of the mesh, and on which of its nodes they are ready."""
    listed = run_command(_list(connection))
    if not print_ids_or_json(output, listed, (one.name for one in listed)):
        wide = output is ListFormat.WIDE
        headings = ("TEMPLATE", "READY", "TOOLS", "DESCRIPTION", *(("IMAGE", "SYSTEM PACKAGES") if wide else ()))
        print_table(headings, [_row(one, wide=wide) for one in listed])


async def _list(connection: ConnectionOptions) -> list[TemplateInfo]:
    async with connection.mesh() as mesh:
        return await mesh.templates.list()


def _row(template: TemplateInfo, *, wide: bool) -> tuple[str, ...]:
    ready = sum(node.prepared for node in template.nodes)
    row = (template.name, f"{ready} of {len(template.nodes)}", ", ".join(template.tool_groups), template.description)
    return (*row, template.image, ", ".join(template.system)) if wide else row

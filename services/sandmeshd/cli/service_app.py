"""The commands of `sandmeshd`, each imported when it runs."""

from __future__ import annotations

import typer

from sandmeshd.cli.terminal.lazy_group import Entry, LazyGroup

SERVICES = "sandmeshd.cli.service_commands"


class ServiceCommands(LazyGroup):
    """The services of a mesh."""

    entries = (
        Entry("driver", SERVICES, "Serve a driver, which runs the sandboxes of a node."),
        Entry("allocator", SERVICES, "Serve the allocator, which owns sandboxes, pools, leases and ports."),
        Entry("broker", SERVICES, "Serve the broker, which owns sessions."),
        Entry("gateway", SERVICES, "Serve the gateway, the mesh's only public address."),
        Entry(
            "facade",
            "sandmeshd.cli.mesh.facade",
            "Serve clients of another system, as a client of a mesh that runs elsewhere.",
        ),
        Entry("agent", "sandmeshd.cli.agent", "Run the agent of a sandbox."),
        Entry("mcp", "sandmeshd.cli.mcp", "Serve MCP clients over streamable HTTP.", typer_name="service_commands"),
    )


app = typer.Typer(
    cls=ServiceCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def sandmeshd() -> None:
    """Run one service of a mesh, until SIGINT or SIGTERM; it prints its address when it serves."""

"""What the commands run: nothing is imported before it is known which packages are installed."""

from __future__ import annotations

from typing import NoReturn

from sandmeshd.cli.launcher import launch

EXTRA = "agentscope"


def sandbox_mcp() -> NoReturn:
    """Run `runtime-sandbox-mcp`."""
    launch("runtime-sandbox-mcp", "sandmeshd.cli.agentscope.mcp", EXTRA)


def sandbox_builder() -> NoReturn:
    """Run `runtime-sandbox-builder`."""
    launch("runtime-sandbox-builder", "sandmeshd.cli.agentscope.builder", EXTRA)


def sandbox_server() -> NoReturn:
    """Run `runtime-sandbox-server`."""
    launch("runtime-sandbox-server", "sandmeshd.cli.agentscope.server", EXTRA)

"""Sandboxes as tools for clients of the Model Context Protocol."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import SecretStr, ValidationError

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.cli.finding import find_address
from sandmeshd.cli.grouping import grouped
from sandmeshd.cli.lifetime import run_to_end
from sandmeshd.cli.making import Making
from sandmeshd.cli.options import Timeout, limits, pairs
from sandmeshd.cli.where import Where
from sandmeshd.runtime.logs import configure_logging

if TYPE_CHECKING:
    from sandmeshd.mcp_adapter import AdapterSettings

INSTALL = 'pip install "sandmesh[mcp]"'

commands = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True)
class Offering:
    """What an MCP client gets."""

    session: Annotated[
        str | None,
        typer.Option(help="Use the sandbox of this session, which stays; else one ends with its client.", metavar="ID"),
    ] = None
    user: Annotated[str | None, typer.Option(help="Whose session; by default yours, or the token's.", metavar="ID")] = (
        None
    )
    manage: Annotated[bool, typer.Option("--manage", help="Offer tools that list, make, switch and end sandboxes.")] = (
        False
    )
    eager: Annotated[
        bool, typer.Option("--eager", help="Make the sandbox when a client connects, not at its first call.")
    ] = False
    log_level: Annotated[
        str, typer.Option(envvar="SANDMESH_LOG_LEVEL", help="From which level on to log, to standard error.")
    ] = "WARNING"


@commands.command(epilog="Example: sandmesh mcp --type filesystem --network packages")
@grouped
def mcp(where: Where, making: Making, offering: Offering, timeout: Timeout = 3000) -> None:
    """Serve an MCP client over standard input and output: a sandbox's tools, and its files as resources.

    The sandbox is made at the first call and ends with the client; docs/mcp.md has what clients want to be told.
    """
    settings = adapter_settings(where, making, offering, timeout)
    # Its libraries take a second to import, which other commands need not wait for.
    from sandmeshd.mcp_adapter.stdio import serve_stdio  # noqa: PLC0415

    run_to_end(serve_stdio(settings))


def adapter_settings(where: Where, making: Making, offering: Offering, timeout: float) -> AdapterSettings:
    """Give what was stated as settings, with logs that go to standard error.

    Raises:
        InvalidArgument: Two things that were stated exclude each other.
        RuntimeUnavailable: What the adapter needs is not installed.
    """
    configure_logging(offering.log_level)
    if find_spec("mcp") is None:
        raise RuntimeUnavailable(f"the MCP adapter is not installed: {INSTALL}", {"fix": INSTALL})
    try:
        from sandmeshd.mcp_adapter import AdapterSettings  # noqa: PLC0415 - as above

        return AdapterSettings(
            sandbox_type=making.template,
            base_url=find_address(where.base_url),
            bearer_token=SecretStr(where.token) if where.token else None,
            session=offering.session,
            user=offering.user or (None if where.token else getpass.getuser()),
            env=pairs(making.env),
            limits=limits(making.limit),
            network=tuple(making.network) if making.network else None,
            manage=offering.manage,
            eager=offering.eager,
            timeout=timeout,
        )
    except ValidationError as error:
        problems = "; ".join(str(one["msg"]) for one in error.errors(include_url=False, include_input=False))
        raise InvalidArgument(problems) from None

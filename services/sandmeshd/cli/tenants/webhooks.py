"""`sandmesh webhook`: events of a mesh, sent to HTTP endpoints."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.exit_codes import FAILED
from sandmeshd.cli.terminal.lifetime import run_command, run_service
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, ListFormat, ListOutput, Output, parse_duration
from sandmeshd.cli.terminal.output import print_ids_or_json, print_json, print_table

if TYPE_CHECKING:
    from sandmeshd.facades.webhooks.hooks import Hook, Hooks, WebhookProgress

commands = typer.Typer(
    help="Send events of a mesh to HTTP endpoints: signed, tried again, in order for each sandbox.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(help="The webhook.", metavar="NAME")]
Folder = Annotated[
    Path | None,
    typer.Option(
        help="Where webhooks are kept; by default below this user's state directory.",
        metavar="DIRECTORY",
        envvar="SANDMESH_WEBHOOKS",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Filters:
    """Which events a webhook gets, and how they are sent."""

    project: Annotated[
        str, typer.Option(help="Only events of this project's sandboxes.", metavar="NAME", show_default=False)
    ] = ""
    template: Annotated[
        str, typer.Option(help="Only events of this template's sandboxes.", metavar="NAME", show_default=False)
    ] = ""
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only events of this kind, such as failed; repeatable.", metavar="KIND", show_default=False),
    ] = None
    secret_file: Annotated[
        Path | None,
        typer.Option(help="A file with the secret, whsec_...; by default one is made.", metavar="FILE"),
    ] = None
    inward: Annotated[bool, typer.Option("--inward", help="The address may be one that is not public.")] = False
    give_up: Annotated[str, typer.Option(help="How long an event is tried, like 10m or 24h.", metavar="TIME")] = "24h"


@commands.command(
    epilog="Examples: sandmesh webhook add alerts https://example.com/hook --kind failed --kind lost | "
    "sandmesh webhook add local http://127.0.0.1:8000/ --inward"
)
@grouped
def add(
    name: Name,
    url: Annotated[str, typer.Argument(help="Where events are posted.", metavar="URL")],
    connection: ConnectionOptions,
    filters: Filters,
    folder: Folder = None,
    output: Output = Format.TEXT,
) -> None:
    """Add a webhook for the events from now on, and print its secret; `webhook run` sends them."""
    from sandmesh.mesh.webhooks import new_secret  # noqa: PLC0415 - help needs none of it
    from sandmeshd.facades.webhooks.hooks import Hook, check  # noqa: PLC0415

    hook = Hook(
        name=name,
        url=url,
        secret=filters.secret_file.read_text().strip() if filters.secret_file else new_secret(),
        project=filters.project,
        template=filters.template,
        kinds=tuple(filters.kind or ()),
        inward=filters.inward,
        give_up_seconds=parse_duration(filters.give_up, "--give-up"),
    )
    check(hook)
    _hooks(folder).add(hook, run_command(_newest(connection)))
    if output is Format.JSON:
        print_json({"name": name, "url": url, "secret": hook.secret})
        return
    typer.echo(hook.secret)
    typer.echo("The receiver checks signatures with this secret. `sandmesh webhook run` sends the events.", err=True)


@commands.command("ls", epilog="Examples: sandmesh webhook ls | sandmesh webhook ls -o json")
@grouped
def list_hooks(folder: Folder = None, output: ListOutput = ListFormat.TABLE) -> None:
    """List webhooks: what was delivered, given up and missed; never secrets."""
    hooks = _hooks(folder)
    found = [(hooks.get(name), hooks.progress(name)) for name in hooks.names()]
    if print_ids_or_json(output, [_Row(hook, progress) for hook, progress in found], (hook.name for hook, _ in found)):
        return
    rows = [
        [
            hook.name,
            hook.url,
            str(progress.delivered),
            str(progress.failures),
            str(progress.dead),
            str(progress.gaps),
            progress.ended or progress.last_failure,
        ]
        for hook, progress in found
    ]
    print_table(("NAME", "URL", "DELIVERED", "FAILURES", "DEAD", "GAPS", "LAST FAILURE"), rows)


@commands.command(epilog="Examples: sandmesh webhook dead alerts | sandmesh webhook dead alerts -o json")
@grouped
def dead(name: Name, folder: Folder = None, output: Output = Format.TEXT) -> None:
    """Print the events of a webhook that were given up, a line each; the oldest first."""
    hooks = _hooks(folder)
    hooks.get(name)
    for letter in hooks.dead(name):
        event: dict[str, Any] = letter["event"]
        if output is Format.JSON:
            print_json(letter)
        else:
            typer.echo(f"{event['time']}  {event['subject']}  {event['data']['kind']}  {letter['error']}")


@commands.command("rm", epilog="Example: sandmesh webhook rm alerts")
@grouped
def remove(name: Name, folder: Folder = None, output: Output = Format.TEXT) -> None:
    """Remove a webhook with its dead letters; nothing more is sent to it."""
    _hooks(folder).remove(name)
    if output is Format.JSON:
        print_json({"name": name})


@commands.command("test", epilog="Example: sandmesh webhook test alerts")
@grouped
def send_test(name: Name, folder: Folder = None, output: Output = Format.TEXT) -> None:
    """Send one event of the type sandmesh.test, and print whether it was accepted."""
    from sandmeshd.facades.webhooks.endpoint import SOURCE  # noqa: PLC0415 - help needs none of it

    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"test-{uuid.uuid4().hex}",
        "source": SOURCE,
        "type": "sandmesh.test",
        "time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": {},
    }
    failure = run_command(_post(_hooks(folder).get(name), event))
    if output is Format.JSON:
        print_json({"accepted": not failure, "failure": failure})
    else:
        typer.echo(failure or "accepted")
    if failure:
        raise typer.Exit(FAILED)


@commands.command(
    epilog="Examples: sandmesh webhook run | SANDMESH_TOKEN=... sandmesh webhook run --base-url grpc://..."
)
@grouped
def run(connection: ConnectionOptions, folder: Folder = None, output: Output = Format.TEXT) -> None:
    """Send the events of all webhooks until Ctrl-C; where it was ended or killed, it continues."""
    run_service(_run(connection, _hooks(folder), output))


def _hooks(folder: Path | None) -> Hooks:
    from sandmeshd.facades.webhooks.hooks import Hooks  # noqa: PLC0415 - help needs none of it
    from sandmeshd.runtime.paths import default_state_directory  # noqa: PLC0415

    return Hooks(folder or default_state_directory() / "webhooks")


class _Row:
    """A webhook as `-o json` prints it."""

    def __init__(self, hook: Hook, progress: WebhookProgress) -> None:
        self._hook = hook
        self._progress = progress

    def to_json(self) -> dict[str, Any]:
        """Return it without its secret."""
        fields = {**vars(self._hook), **vars(self._progress)}
        return {name: value for name, value in fields.items() if name != "secret"}


async def _newest(connection: ConnectionOptions) -> str:
    async with connection.mesh() as mesh:
        found = await mesh.events.list(limit=1)
    return found[-1].event_id if found else "0-0"


async def _post(hook: Hook, event: dict[str, Any]) -> str:
    from sandmeshd.facades.webhooks.endpoint import DeliveryError, EndpointGone, open_endpoint  # noqa: PLC0415

    async with open_endpoint(hook) as endpoint:
        try:
            await endpoint.post(event)
        except DeliveryError as error:
            return str(error)
        except EndpointGone:
            return "the endpoint answered 410: it wants no more events"
    return ""


async def _run(connection: ConnectionOptions, hooks: Hooks, output: Format) -> None:
    from sandmeshd.facades.webhooks.delivery import run_hooks  # noqa: PLC0415 - help needs none of it

    with hooks.lock():
        async with connection.mesh() as mesh:
            await mesh.whoami()
            names = await asyncio.to_thread(hooks.names)
            if output is Format.JSON:
                print_json({"webhooks": names})
            else:
                typer.echo(f"sending events to {len(names)} webhooks")
            await run_hooks(hooks, mesh)

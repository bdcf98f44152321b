"""`sandmesh up` and `down`: a mesh on this machine."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Extensions, Format, Json, Output, Templates, parse_pairs
from sandmeshd.cli.terminal.output import print_json

if TYPE_CHECKING:
    from sandmeshd.cli.mesh.down import EndedMesh

commands = typer.Typer(rich_markup_mode=None)

PRINTED_EACH = 100
"""How many sandboxes are deleted between two lines of progress."""

PRINTED_REASONS = 10
"""Of how many sandboxes `down` says why they could not be deleted."""


@dataclass(frozen=True)
class UpOptions:
    """Settings of a mesh on the command line; the rest comes from the environment, then the file."""

    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="A host:port to listen on beside the unix socket, beyond loopback only with TLS; repeatable.",
            metavar="HOST:PORT",
        ),
    ] = None
    pool: Annotated[
        list[str] | None,
        typer.Option(help="Sandboxes of a template to keep ready; repeatable.", metavar="TEMPLATE=COUNT"),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            help="A file of settings, one SANDMESH_NAME=VALUE a line; the environment overrides it. "
            "Without it a .env in the working directory is read.",
            metavar="FILE",
        ),
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="The number of processes that serve the addresses of --listen.", metavar="COUNT")
    ] = None
    max_sandboxes: Annotated[
        int | None,
        typer.Option(help="The most sandboxes that exist at the same time, including those in pools.", metavar="COUNT"),
    ] = None

    adb_device: Annotated[
        list[str] | None,
        typer.Option(help="An Android device for sandboxes, as `adb devices` lists it; repeatable.", metavar="SERIAL"),
    ] = None
    extension: Extensions = None
    template: Templates = None
    keep: Annotated[
        bool | None,
        typer.Option("--keep/--no-keep", help="Keep the sandboxes for the next start of the mesh."),
    ] = None
    tls_cert: Annotated[
        Path | None, typer.Option(help="The certificate of these addresses, with its chain.", metavar="PEM")
    ] = None
    tls_key: Annotated[Path | None, typer.Option(help="The certificate's key.", metavar="PEM")] = None
    require_token: Annotated[
        bool | None, typer.Option(help="Require a token from clients at these addresses.", show_default="with TLS")
    ] = None
    allow_insecure: Annotated[
        bool | None, typer.Option("--allow-insecure", help="Listen beyond loopback even without TLS.")
    ] = None

    def settings(self) -> dict[str, object]:
        """Return the options as settings; None where one is not set."""
        return {
            "config": self.config,
            "workers": self.workers,
            "listen": tuple(self.listen) if self.listen else None,
            "pools": _parse_pools(self.pool) or None,
            "max_sandboxes": self.max_sandboxes,
            "adb_devices": tuple(self.adb_device) if self.adb_device else None,
            "extensions": tuple(self.extension) if self.extension else None,
            "templates": tuple(self.template) if self.template else None,
            "keep_sandboxes": self.keep,
            "tls_cert": self.tls_cert,
            "tls_key": self.tls_key,
            "require_token": self.require_token,
            "allow_insecure": self.allow_insecure,
        }

    def command_line(self) -> list[str]:
        """Return the options as a command line that works in any directory."""
        listens = [argument for address in self.listen or () for argument in ("--listen", address)]
        pools = [argument for pool in self.pool or () for argument in ("--pool", pool)]
        devices = [argument for serial in self.adb_device or () for argument in ("--adb-device", serial)]
        files = {"--config": self.config, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        valued: dict[str, object] = {"--workers": self.workers, "--max-sandboxes": self.max_sandboxes}
        valued |= {option: None if path is None else path.absolute() for option, path in files.items()}
        set_options = [text for option, value in valued.items() if value is not None for text in (option, str(value))]
        switches = {"keep": self.keep, "require-token": self.require_token}
        flags = [f"--{name}" if on else f"--no-{name}" for name, on in switches.items() if on is not None]
        extensions = [argument for name in self.extension or () for argument in ("--extension", absolute_path(name))]
        templates = [argument for path in self.template or () for argument in ("--template", absolute_path(path))]
        return [
            *listens,
            *pools,
            *devices,
            *set_options,
            *extensions,
            *templates,
            *flags,
            *(["--allow-insecure"] if self.allow_insecure else []),
        ]


@dataclass(frozen=True)
class DoorOptions:
    """Doors of a mesh for clients of other systems."""

    e2b: Annotated[bool, typer.Option("--e2b", help="Serve E2B's clients on the HTTP listener too.")] = False
    agentscope: Annotated[
        bool, typer.Option("--agentscope", help="Serve AgentScope Runtime's SDK on the HTTP listener too.")
    ] = False
    swerex: Annotated[
        bool, typer.Option("--swerex", help="Serve SWE-ReX's RemoteRuntime on the HTTP listener too.")
    ] = False
    sandboxfusion: Annotated[
        bool, typer.Option("--sandboxfusion", help="Serve SandboxFusion's clients on the HTTP listener too.")
    ] = False
    jupyter: Annotated[
        bool, typer.Option("--jupyter", help="Serve Jupyter Server's remote kernels on the HTTP listener too.")
    ] = False
    domain: Annotated[
        str | None,
        typer.Option(
            help="A domain that leads here: E2B's clients reach sandboxes by its names, over HTTPS; "
            "the extra tls makes a certificate for trials (pip install 'sandmesh[tls]'). mesh.localhost needs no DNS.",
            metavar="NAME",
        ),
    ] = None

    def settings(self) -> dict[str, object]:
        """Return the options as settings; None where one is not set."""
        e2b = True if self.e2b or self.domain else None
        doors = {"agentscope": self.agentscope or None, "swerex": self.swerex or None}
        doors |= {"sandboxfusion": self.sandboxfusion or None, "jupyter": self.jupyter or None}
        return {"e2b": e2b, "e2b_domain": self.domain, **doors}

    def command_line(self) -> list[str]:
        """Return the options as a command line."""
        flags = {"--e2b": self.e2b, "--agentscope": self.agentscope, "--swerex": self.swerex}
        flags |= {"--sandboxfusion": self.sandboxfusion, "--jupyter": self.jupyter}
        domain = ["--domain", self.domain] if self.domain else []
        return [*(flag for flag, chosen in flags.items() if chosen), *domain]


@commands.command(
    epilog="Examples: sandmesh up | sandmesh up -d --pool base=2 | sandmesh up --listen 127.0.0.1:8570 --keep"
)
@grouped
def up(
    options: UpOptions,
    doors: DoorOptions,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run it in the background and return when it is ready.")
    ] = False,
    output: Output = Format.TEXT,
    as_json: Json = False,
    ready_fd: Annotated[int | None, typer.Option(hidden=True, help="Where progress is written.")] = None,
) -> None:
    """Run a mesh with all its services on this machine, until Ctrl-C or `sandmesh down`."""
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.config_file import find_config  # noqa: PLC0415
    from sandmeshd.cli.mesh.start import start_in_background, start_in_foreground  # noqa: PLC0415

    if ready_fd is None:
        options = replace(options, config=find_config(options.config, os.environ, Path.cwd()))
    json = as_json or output is Format.JSON
    if detach:
        command_line = [*options.command_line(), *doors.command_line()]
        start_in_background(options.settings() | doors.settings(), command_line, as_json=json)
    else:
        start_in_foreground(options.settings() | doors.settings(), ready_fd, as_json=json)


@commands.command(epilog="Examples: sandmesh down | sandmesh down --keep")
def down(
    keep: Annotated[bool, typer.Option("--keep", help="Keep its sandboxes for the next start.")] = False,
    timeout: Annotated[float, typer.Option(help="The longest that no sandbox is deleted.", metavar="SECONDS")] = 60.0,
    output: Output = Format.TEXT,
) -> None:
    """End this user's local mesh and delete its sandboxes, also those of one that was killed."""
    from sandmeshd.cli.mesh.down import end_mesh  # noqa: PLC0415 - as above

    ended = run_command(end_mesh(keep=keep, timeout=timeout, progress=_print_left))
    if output is Format.JSON:
        print_json(asdict(ended))
    else:
        _print_ended(ended)
    if ended.failed:
        _print_undeleted(ended)
        raise typer.Exit(1)


def _print_undeleted(ended: EndedMesh) -> None:
    again = "mend that, then run `sandmesh down` again"
    fix = again if ended.reasons else "run `sandmesh down` again; `sandmesh doctor` says what is wrong with the driver"
    typer.echo(f"Sandboxes that could not be deleted, and may still run: {ended.failed}; {fix}", err=True)
    for sandbox_id, reason in list(ended.reasons.items())[:PRINTED_REASONS]:
        typer.echo(f"  {sandbox_id}: {reason}", err=True)


def _print_left(left: int) -> None:
    if left % PRINTED_EACH == 0:
        typer.echo(f"Sandboxes left to delete: {left}", err=True)


def _print_ended(ended: EndedMesh) -> None:
    if ended.pid is not None:
        typer.echo(f"The mesh {ended.mesh_id} (process {ended.pid}) ended.")
    else:
        typer.echo(f"No mesh {ended.mesh_id} of this user runs here.")
    if ended.removed:
        typer.echo(f"Sandboxes deleted: {ended.removed}")
    if ended.kept:
        typer.echo(f"Sandboxes kept for the next start: {ended.kept}")


def _parse_pools(entries: list[str] | None) -> dict[str, int]:
    pools = parse_pairs(entries, "TEMPLATE=COUNT")
    for name, count in pools.items():
        if not (count.isascii() and count.isdecimal() and len(count) < 10):
            raise typer.BadParameter(f"'{name}={count}' is not TEMPLATE=COUNT, like base=2")
    return {name: int(count) for name, count in pools.items()}


def absolute_path(name: str | Path) -> str:
    """Return the absolute path of a file, for a process in another directory; a module's name as it is."""
    return str(Path(name).resolve()) if Path(name).is_file() else str(name)

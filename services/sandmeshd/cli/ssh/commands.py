"""`sandmesh ssh` and `sandmesh ssh-config`: OpenSSH's own clients reach a sandbox by a ProxyCommand."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.terminal.connection import ConnectionOptions
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, Output, SandboxId
from sandmeshd.cli.terminal.output import print_json

commands = typer.Typer(rich_markup_mode=None)

SUFFIX = ".sandmesh"
_WITH_VALUE = "BbcDEeFIiJLlmOoPpQRSWw"


@commands.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Examples: sandmesh ssh sb_... | sandmesh ssh sb_... -L 8000:localhost:8000 | "
    "ssh -o ProxyCommand='sandmesh ssh --stdio %h' sb_...",
)
@grouped
def ssh(
    sandbox_id: SandboxId,
    connection: ConnectionOptions,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="Options of ssh, then a command of the sandbox.", metavar="ARGUMENT...", show_default=False
        ),
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve the SSH client on standard input and output, as a ProxyCommand.")
    ] = False,
) -> None:
    """Open an SSH session in a sandbox by OpenSSH's ssh; sftp, scp and rsync take what `sandmesh ssh-config` prints."""
    name = sandbox_id.removesuffix(SUFFIX)
    if stdio:
        run_command(_serve(connection, name))
        return
    program = shutil.which("ssh")
    if program is None:
        fix = "install openssh-client, or use `sandmesh shell`"
        raise InvalidArgument(f"there is no ssh on this machine: {fix}", {"fix": fix})
    options = [part for option, value in _options(connection).items() for part in ("-o", f"{option}={value}")]
    words = arguments or []
    before = _ssh_options(words)
    command = [program, *options, *words[:before], name, *words[before:]]
    token = {"SANDMESH_TOKEN": connection.token} if connection.token else {}
    os.execve(program, command, {**os.environ, **token})  # noqa: S606 - no shell is wanted


@commands.command(name="ssh-config", epilog="Example: sandmesh ssh-config >> ~/.ssh/config; ssh sb_....sandmesh")
@grouped
def ssh_config(connection: ConnectionOptions, output: Output = Format.TEXT) -> None:
    """Print a block for ~/.ssh/config by which ssh, sftp, rsync and editors reach each sandbox as ID.sandmesh."""
    values = _options(connection)
    if output is Format.JSON:
        print_json({"host": f"*{SUFFIX}", **values})
        return
    typer.echo("\n".join([f"Host *{SUFFIX}", *(f"    {option} {value}" for option, value in values.items())]))


def _options(connection: ConnectionOptions) -> dict[str, str]:
    """Return the options of OpenSSH's clients."""
    from sandmeshd.cli.ssh.keys import HOST_ALIAS, user_keys  # noqa: PLC0415 - they need the extra ssh

    keys = user_keys()
    own = Path(sys.executable).parent / "sandmesh"
    program = [str(own)] if own.exists() else [sys.executable, "-m", "sandmeshd.cli.user"]
    mesh = ["--base-url", connection.base_url] if connection.base_url else []
    return {
        # Quoted, since ssh runs it by a shell with the name that it was given.
        "ProxyCommand": shlex.join([*program, "ssh", *mesh, "--stdio"]).replace("%", "%%") + " '%n'",
        "User": "sandbox",
        "IdentityFile": f'"{keys.client}"'.replace("%", "%%"),
        "IdentitiesOnly": "yes",
        "HostKeyAlias": HOST_ALIAS,
        "UserKnownHostsFile": f'"{keys.known_hosts}"'.replace("%", "%%"),
        "StrictHostKeyChecking": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }


def _ssh_options(arguments: list[str]) -> int:
    """Return how many arguments are options of ssh, with their values, before its command."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        letters = arguments[at][1:]
        takes = next((place for place, letter in enumerate(letters) if letter in _WITH_VALUE), None)
        # The value is the rest of the argument, or else the next one.
        at += 2 if takes == len(letters) - 1 else 1
    return min(at, len(arguments))


async def _serve(connection: ConnectionOptions, sandbox_id: str) -> None:
    from sandmeshd.cli.ssh.keys import user_keys  # noqa: PLC0415 - they need the extra ssh
    from sandmeshd.cli.ssh.server import serve, standard_streams  # noqa: PLC0415

    keys = user_keys()
    async with connection.sandbox(sandbox_id) as box:
        await serve(box, keys, standard_streams())

"""`sandmesh image`: pull, list, remove, push and import images of sandboxes, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.option_groups import grouped
from sandmeshd.cli.terminal.options import Format, ListFormat, ListOutput, Output, parse_duration
from sandmeshd.cli.terminal.output import print_ids_or_json, print_json, print_table

if TYPE_CHECKING:
    from sandmeshd.images.collection import Freed
    from sandmeshd.images.image import PulledImage

image_commands = typer.Typer(
    help="Pull, list, push and remove images of sandboxes, without an engine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(
        help="An image's name, like python:3.12-slim, or oci:/DIR, docker-archive:/FILE or tar:/FILE.", metavar="IMAGE"
    ),
]
Config = Annotated[Path | None, typer.Option("--config", help="A file of settings, as for `up`.", metavar="FILE")]


@image_commands.command(epilog="Examples: sandmesh image pull python:3.12-slim | sandmesh image pull oci:./layout")
@grouped
def pull(name: Name, config: Config = None, output: Output = Format.TEXT) -> None:
    """Download an image and unpack it, as far as it is not here; print its digest."""
    # The services take a second to import, which help and completion need not wait for; so everywhere here.
    from sandmeshd.cli.images.stores import pull_image  # noqa: PLC0415

    _print_image(run_command(pull_image(config, name)), output)


@image_commands.command(name="import", epilog="Example: sandmesh image import ./root.tar.zst mine:1")
@grouped
def import_(
    file: Annotated[
        Path,
        typer.Argument(help="An OCI layout, one in a tar, what `docker save` wrote, or a root file system's tar."),
    ],
    name: Annotated[str, typer.Argument(help="The name that it gets here.", metavar="NAME")],
    config: Config = None,
    output: Output = Format.TEXT,
) -> None:
    """Unpack an image of a file or directory under a name, and print its digest."""
    from sandmeshd.cli.images.stores import import_image  # noqa: PLC0415

    _print_image(run_command(import_image(config, file, name)), output)


@image_commands.command(epilog="Example: sandmesh image push mine:1 registry.example/team/mine:1")
@grouped
def push(
    name: Name,
    target: Annotated[str, typer.Argument(help="Where it goes: REGISTRY/NAME:TAG.", metavar="TARGET")],
    config: Config = None,
    output: Output = Format.TEXT,
) -> None:
    """Push an image that is here to a registry, and print its name there with its digest."""
    from sandmeshd.cli.images.stores import push_image  # noqa: PLC0415

    pushed = run_command(push_image(config, name, target))
    if output is Format.JSON:
        print_json({"image": pushed})
    else:
        typer.echo(pushed)


@image_commands.command(name="ls", epilog="Examples: sandmesh image ls | sandmesh image ls -o json")
@grouped
def list_images(config: Config = None, output: ListOutput = ListFormat.TABLE) -> None:
    """List the images that are here."""
    from sandmeshd.cli.images.stores import list_records  # noqa: PLC0415

    records = list_records(config)
    if not print_ids_or_json(output, records, (record.name for record in records)):
        rows = [
            (record.name, record.digest[7:19], str(record.layers), f"{record.size / 1e6:.1f} MB") for record in records
        ]
        print_table(("IMAGE", "DIGEST", "LAYERS", "SIZE"), rows)


@image_commands.command(epilog="Example: sandmesh image inspect python:3.12-slim")
@grouped
def inspect(name: Name, config: Config = None, output: Output = Format.JSON) -> None:
    """Print what an image that is here says of its processes, and what was left out of it."""
    from sandmeshd.cli.images.stores import find_image, to_json  # noqa: PLC0415

    del output
    print_json(to_json(find_image(config, name)))


@image_commands.command(epilog="Example: sandmesh image rm python:3.12-slim")
@grouped
def rm(
    names: Annotated[list[str], typer.Argument(help="The names that `sandmesh image ls` prints.", metavar="IMAGE...")],
    config: Config = None,
    output: Output = Format.TEXT,
) -> None:
    """Remove images that no sandbox uses, and what no other image has."""
    from sandmeshd.cli.images.stores import remove_images  # noqa: PLC0415

    _print_freed(run_command(remove_images(config, names)), output)


@image_commands.command(epilog="Examples: sandmesh image prune | sandmesh image prune --unused 2w")
@grouped
def prune(
    unused: Annotated[
        str | None, typer.Option(help="Leave those that were used within this time, like 12h or 2w.", metavar="TIME")
    ] = None,
    config: Config = None,
    output: Output = Format.TEXT,
) -> None:
    """Remove all images that no sandbox uses, and what killed pulls have left."""
    from sandmeshd.cli.images.stores import prune_images  # noqa: PLC0415

    seconds = 0 if unused is None else parse_duration(unused, "--unused")
    _print_freed(run_command(prune_images(config, seconds)), output)


def _print_image(image: PulledImage, output: Format) -> None:
    from sandmeshd.cli.images.stores import to_json  # noqa: PLC0415 - as above

    if output is Format.JSON:
        print_json(to_json(image))
        return
    typer.echo(image.digest)
    for what, count in image.left_out.items():
        typer.echo(f"left out: {count} {what}", err=True)


def _print_freed(freed: Freed, output: Format) -> None:
    from sandmeshd.images.reference import STEPS  # noqa: PLC0415 - as above

    if output is Format.JSON:
        print_json({"images": freed.references, "bytes": freed.size})
        return
    steps = [reference for reference in freed.references if reference.startswith(STEPS)]
    for reference in freed.references:
        if reference not in steps:
            typer.echo(reference)
    if steps:
        typer.echo(f"{len(steps)} steps of builds were removed", err=True)
    typer.echo(f"{freed.size / 1e6:.1f} MB are free again", err=True)

"""`sandmesh build --tag NAME DIR`: an image of a Dockerfile, without an engine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandmesh.errors import InvalidArgument, TemplateBuildFailed
from sandmeshd.cli.terminal.lifetime import run_command
from sandmeshd.cli.terminal.output import print_json

if TYPE_CHECKING:
    from sandmeshd.images.builds.context import Context
    from sandmeshd.images.builds.options import ImageBuildOptions, MountedSecret


@dataclass(frozen=True)
class ImageOptions:
    """How an image is built of a Dockerfile."""

    tag: Annotated[
        str, typer.Option(help="Build an image of a Dockerfile under this name, without an engine.", metavar="NAME")
    ] = ""
    file: Annotated[
        str, typer.Option("--file", "-f", help="The Dockerfile; - is standard input. [default: DIR/Dockerfile]")
    ] = ""
    network: Annotated[
        list[str] | None,
        typer.Option(
            help="What RUN may reach: `packages`, `public`, `none`, or a host; may be repeated. [default: packages]",
            metavar="WHAT",
        ),
    ] = None
    build_arg: Annotated[
        list[str] | None, typer.Option(help="The value of an ARG; may be repeated.", metavar="NAME[=VALUE]")
    ] = None
    secret: Annotated[
        list[str] | None,
        typer.Option(help="What --mount=type=secret shows; may be repeated.", metavar="id=ID,src=FILE|env=NAME"),
    ] = None
    build_context: Annotated[
        list[str] | None,
        typer.Option(help="Another directory, for COPY --from=NAME; may be repeated.", metavar="NAME=DIR"),
    ] = None
    target: Annotated[str, typer.Option(help="The stage that becomes the image; by default the last.")] = ""
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Carry out every step again.")] = False
    pull: Annotated[bool, typer.Option("--pull", help="Look for newer bases in their registries.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing of the steps.")] = False

    @property
    def is_chosen(self) -> bool:
        """Whether an image is to be built."""
        return bool(self.tag)

    def check(self) -> None:
        """Check that options of images come with a name for one.

        Raises:
            InvalidArgument: They do not.
        """
        options = [name for name in ("file", "build_arg", "secret", "build_context", "target") if getattr(self, name)]
        if options and not self.tag:
            fix = "add --tag NAME, or use --dockerfile for a template's image on an engine"
            raise InvalidArgument(f"--{options[0].replace('_', '-')} is for images: {fix}", {"fix": fix})


def build_image(directory: str, options: ImageOptions, *, as_json: bool) -> None:
    """Build an image; print its digest."""
    run_command(_build(directory, options, as_json=as_json))


async def _build(directory: str, options: ImageOptions, *, as_json: bool) -> None:
    # The services take a second to import, which help and completion need not wait for.
    from sandmeshd.cli.config.environment import read_settings  # noqa: PLC0415
    from sandmeshd.images.builds.options import Report  # noqa: PLC0415
    from sandmeshd.mesh.image_builds import build_image as build  # noqa: PLC0415
    from sandmeshd.runtime.telemetry.logs import configure_logging  # noqa: PLC0415

    began = time.monotonic()
    settings, wanted = read_settings(), _read(directory, options)
    configure_logging("WARNING")
    report = Report() if options.quiet else Report(_print_line, _print_output)
    try:
        image, totals = await build(settings, options.tag, wanted, report)
    except TemplateBuildFailed as error:
        if not options.quiet:
            # The command's output is on the screen already.
            raise TemplateBuildFailed(error.message, {"line": error.facts["line"]}) from None
        raise
    facts = {"steps": totals.steps, "cached": totals.cached, "written_bytes": totals.written}
    seconds = round(time.monotonic() - began, 1)
    if as_json:
        print_json({"reference": image.reference, "digest": image.digest, "seconds": seconds, **facts})
        return
    if not options.quiet:
        steps = f"{totals.steps} steps, {totals.cached} of them cached, {totals.written / 1e6:.1f} MB written"
        _print_line(f"{options.tag} is built: {steps}, {seconds} s")
    typer.echo(image.digest)


def _print_line(line: str) -> None:
    typer.echo(line, err=True)


def _print_output(line: str) -> None:
    typer.echo(f"  | {line}", err=True)


def _read(directory: str, options: ImageOptions) -> ImageBuildOptions:
    from sandmesh.shared.files.dockerignore import read_ignore  # noqa: PLC0415
    from sandmeshd.images.builds.context import Context  # noqa: PLC0415 - as above
    from sandmeshd.images.builds.options import ImageBuildOptions  # noqa: PLC0415

    folder = Path(directory)
    if not folder.is_dir():
        raise InvalidArgument(f"{directory} is not a directory: name the one that the Dockerfile copies from")
    file = None if options.file == "-" else Path(options.file) if options.file else folder / "Dockerfile"
    network = tuple(options.network or ("packages",))
    return ImageBuildOptions(
        dockerfile=_read_dockerfile(file),
        context=Context(folder.absolute(), read_ignore(folder, file)),
        contexts=dict(_contexts(options.build_context or [])),
        arguments=dict(_arguments(options.build_arg or [])),
        secrets=dict(_secrets(options.secret or [])),
        network=() if network == ("none",) else network,
        target=options.target,
        cached=not options.no_cache,
        pull=options.pull,
    )


def _read_dockerfile(file: Path | None) -> bytes:
    if file is None:
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}: name it with --file") from None


def _contexts(texts: list[str]) -> Iterator[tuple[str, Context]]:
    from sandmesh.shared.files.dockerignore import read_ignore  # noqa: PLC0415
    from sandmeshd.images.builds.context import Context  # noqa: PLC0415 - as above

    for text in texts:
        name, _, place = text.partition("=")
        if not name or not Path(place).is_dir():
            raise InvalidArgument(f"--build-context {text!r} is not NAME=DIR, with a directory of this machine")
        yield name, Context(Path(place).absolute(), read_ignore(Path(place), None))


def _arguments(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, equals, value = text.partition("=")
        if equals or name in os.environ:
            yield name, value if equals else os.environ[name]


def _secrets(texts: list[str]) -> Iterator[tuple[str, MountedSecret]]:
    from sandmeshd.images.builds.options import MountedSecret  # noqa: PLC0415 - as above

    for text in texts:
        pairs = (part.partition("=") for part in text.split(","))
        parts = {name: value for name, _, value in pairs}
        name, source = parts.get("id", ""), parts.get("src", parts.get("source", ""))
        variable = parts.get("env", "" if source else name)
        if not name or (not source and variable not in os.environ):
            raise InvalidArgument(f"--secret {text!r} is not id=ID,src=FILE or id=ID,env=NAME, with what is there")
        try:
            value = Path(source).expanduser().read_bytes() if source else os.environb[variable.encode()]
        except OSError as error:
            raise InvalidArgument(f"the secret {name}: {source}: {error.strerror}") from None
        yield name, MountedSecret(value.decode(errors="surrogateescape"))

"""Reports the progress of a mesh's start and its addresses: to a person, to a program, or to the parent process."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import typer

from sandmesh.errors import SandmeshError
from sandmeshd.cli.terminal.output import print_json
from sandmeshd.cli.terminal.progress import Report, progress_bar
from sandmeshd.runtime.processes.owner import StatusPipe


@dataclass(frozen=True)
class StartedMesh:
    """A mesh that is ready: its addresses, those as clients take them, those for HTTP, its process and its log.

    `keep` is whether its sandboxes outlive it.
    """

    addresses: tuple[str, ...]
    base_urls: tuple[str, ...]
    http: tuple[str, ...]
    pid: int
    keep: bool
    log: str | None = None
    e2b: Mapping[str, str] | None = None
    """The variables that E2B's clients need; None where the mesh has no door for them."""
    doors: Mapping[str, str] | None = None
    """The URLs of the doors whose clients need no more than that and a token; None where the mesh has none."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def base_urls(addresses: Sequence[str], *, tls: bool) -> tuple[str, ...]:
    """Return addresses as clients take them for `base_url`."""
    return tuple(address if "://" in address else f"{'grpcs' if tls else 'grpc'}://{address}" for address in addresses)


class StartReporter(Protocol):
    """What the start of a mesh is reported to."""

    @contextmanager
    def progress(self) -> Generator[Report]:
        """Yield a function of (message, fraction) for the duration of the start."""
        ...

    def ready(self, mesh: StartedMesh) -> None:
        """Report that the mesh is ready."""
        ...


class ConsoleReporter:
    """Writes to the terminal, or one JSON line for a program."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    @contextmanager
    def progress(self) -> Generator[Report]:
        """Show a bar on standard error."""
        with progress_bar() as report:
            yield report

    def ready(self, mesh: StartedMesh) -> None:
        """Write the addresses on standard output."""
        if self._as_json:
            print_json(mesh.to_json())
        else:
            typer.echo("\n".join(_describe(mesh)))


class PipeReporter:
    """Writes JSON lines into a pipe to the parent process: progress, then the mesh or the error."""

    def __init__(self, descriptor: int) -> None:
        self._status = StatusPipe(descriptor)

    @contextmanager
    def progress(self) -> Generator[Report]:
        """Write each step."""
        yield self._status.progress

    def ready(self, mesh: StartedMesh) -> None:
        """Write the mesh and close the pipe."""
        self._status.finish({"ready": mesh.to_json()})

    def failed(self, error: SandmeshError) -> None:
        """Write the error."""
        self._status.fail(error)


def describe_doors(e2b: Mapping[str, str], urls: Mapping[str, str]) -> list[str]:
    """Return what a person reads of doors: the variables of E2B's clients, and the URLs of the others by name."""
    # The doors are found among the installed packages, which a mesh without one need not read.
    from sandmeshd.facades.registry import find_door  # noqa: PLC0415

    exports = "\n".join(f"  export {name}={value}" for name, value in e2b.items())
    opened = {**({"e2b": ""} if e2b else {}), **urls}
    hints = [find_door(name).hint.format(url=url, variables=exports) for name, url in opened.items()]
    return [line for hint in hints for line in hint.splitlines()]


def _describe(mesh: StartedMesh) -> list[str]:
    lines = ["The mesh is ready. Programs of this user find it by themselves; others connect by base_url:"]
    lines += [f"  {url}" for url in mesh.base_urls]
    if mesh.http:
        lines.append("Health, metrics and the ports of sandboxes are served by HTTP, which is not a base_url:")
        lines += [f"  {address}" for address in mesh.http]
    lines += describe_doors(mesh.e2b or {}, mesh.doors or {})
    fate = "are kept for the next start" if mesh.keep else "end with it"
    if mesh.log is None:
        return [*lines, f"Ctrl-C ends it. Its sandboxes {fate}."]
    return [
        *lines,
        f"It runs as process {mesh.pid} and logs to {mesh.log}.",
        f"`sandmesh down` ends it. Its sandboxes {fate}.",
    ]

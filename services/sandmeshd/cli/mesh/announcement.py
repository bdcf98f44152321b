"""How a mesh that starts says how far it is and where it is: to a person, to a program, or to who started it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import typer
from rich.console import Console

from sandmesh.errors import SandmeshError
from sandmeshd.cli.terminal.output import print_json
from sandmeshd.cli.terminal.progress import Report, progress_bar
from sandmeshd.runtime.owner import StatusPipe


@dataclass(frozen=True)
class Ready:
    """A mesh that is up: its addresses, the same as clients take them, those for HTTP, its process, and its log.

    `keep` says whether its sandboxes outlive it.
    """

    addresses: tuple[str, ...]
    base_urls: tuple[str, ...]
    http: tuple[str, ...]
    pid: int
    keep: bool
    log: str | None = None

    def plain(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def urls(addresses: Sequence[str], *, tls: bool) -> tuple[str, ...]:
    """Give addresses as clients take them for `base_url`."""
    return tuple(one if "://" in one else f"{'grpcs' if tls else 'grpc'}://{one}" for one in addresses)


class Announcer(Protocol):
    """Who hears of a mesh's start."""

    @contextmanager
    def progress(self) -> Generator[Report]:
        """Give what takes (message, fraction) while the mesh starts."""
        ...

    def ready(self, ready: Ready) -> None:
        """Learn that the mesh is up."""
        ...


class ToPerson:
    """Writes for a person, or one JSON line for a program."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    @contextmanager
    def progress(self) -> Generator[Report]:
        """Show a bar on standard error."""
        with progress_bar(Console(stderr=True)) as report:
            yield report

    def ready(self, ready: Ready) -> None:
        """Write the addresses on standard output."""
        if self._as_json:
            print_json(ready.plain())
        else:
            typer.echo("\n".join(_lines(ready)))


class ToStarter:
    """Writes JSON lines into a pipe: progress, then the mesh or the error."""

    def __init__(self, descriptor: int) -> None:
        self._status = StatusPipe(descriptor)

    @contextmanager
    def progress(self) -> Generator[Report]:
        """Write each step."""
        yield self._status.progress

    def ready(self, ready: Ready) -> None:
        """Write the mesh and close the pipe."""
        self._status.finish({"ready": ready.plain()})

    def failed(self, error: SandmeshError) -> None:
        """Write what stands in the way."""
        self._status.fail(error)


def _lines(ready: Ready) -> list[str]:
    lines = ["The mesh is up. Programs of this user find it by themselves; others connect by base_url:"]
    lines += [f"  {url}" for url in ready.base_urls]
    lines += [f"  {address} (health, metrics, ports of sandboxes)" for address in ready.http]
    fate = "stay for the next start" if ready.keep else "end with it"
    if ready.log is None:
        return [*lines, f"Ctrl-C ends it. Its sandboxes {fate}."]
    return [
        *lines,
        f"It runs as process {ready.pid} and logs to {ready.log}.",
        f"`sandmesh down` ends it. Its sandboxes {fate}.",
    ]

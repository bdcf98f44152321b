"""Webhooks on this machine: what each is for, how far it has come, and what was given up."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sandmesh.errors import AlreadyExists, InvalidArgument, NotFound, WrongState
from sandmesh.mesh.webhooks import sign
from sandmesh.shared.files.atomic_file import open_replacement

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
CLOUD_EVENTS: Final = "cloudevents"
MOST_DEAD: Final = 10_000
"""Dead letters that a webhook keeps; beyond them they are only counted."""


@dataclass(frozen=True, kw_only=True)
class Hook:
    """A webhook: where events go, and which."""

    name: str
    url: str
    secret: str = field(repr=False)
    project: str = ""
    """Only events of this project's sandboxes; empty: of all."""
    template: str = ""
    kinds: tuple[str, ...] = ()
    """Only events of these kinds; empty: all."""
    inward: bool = False
    """Whether its address may be one that is not public."""
    give_up_seconds: float = 24 * 3600
    """How long an event is tried."""
    user_id: str = ""
    """Only events of this user's sandboxes; empty: of all."""
    enabled: bool = True
    """Whether events are sent."""
    form: str = CLOUD_EVENTS
    """What its requests are; CloudEvents' form needs a secret of Standard Webhooks."""
    details: dict[str, str] = field(default_factory=dict[str, str])
    """What who added it keeps with it."""


@dataclass
class WebhookProgress:
    """How far a webhook has come."""

    cursor: str
    """All events up to this one were delivered, given up or filtered out."""
    delivered: int = 0
    failures: int = 0
    """Attempts that failed."""
    dead: int = 0
    """Events that were given up."""
    gaps: int = 0
    """How often the mesh no longer had the events that were to come next: it keeps a bounded number."""
    ended: str = ""
    """Why it sends nothing any more."""
    last_failure: str = ""


class Hooks:
    """The webhooks below a directory, a few files each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the names of all."""
        return sorted(path.name.removesuffix(".hook.json") for path in self.folder.glob("*.hook.json"))

    def add(self, hook: Hook, cursor: str) -> None:
        """Add a webhook whose events are those after `cursor`.

        Raises:
            AlreadyExists: One has its name.
            InvalidArgument: Its name, URL or secret has another form.
        """
        check(hook)
        if hook.name in self.names():
            raise AlreadyExists(f"there is a webhook {hook.name}: remove it, or choose another name", {})
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.save(hook.name, WebhookProgress(cursor))
        _write(self._path(hook.name, "hook"), asdict(hook))

    def get(self, name: str) -> Hook:
        """Return a webhook.

        Raises:
            NotFound: There is none of that name.
        """
        if name not in self.names():
            raise NotFound(f"there is no webhook {name!r}: `sandmesh webhook ls` lists them", {"name": name})
        fields: dict[str, Any] = json.loads(self._path(name, "hook").read_text())
        fields["kinds"] = tuple(fields["kinds"])
        return Hook(**fields)

    def replace(self, hook: Hook) -> None:
        """Replace what a webhook is for; it goes on where it was.

        Raises:
            NotFound: There is none of its name.
            InvalidArgument: Its URL has another form.
        """
        self.get(hook.name)
        check(hook)
        _write(self._path(hook.name, "hook"), asdict(hook))

    def remove(self, name: str) -> None:
        """Remove a webhook with its progress and dead letters.

        Raises:
            NotFound: There is none of that name.
        """
        self.get(name)
        for kind in ("hook", "progress", "dead"):
            self._path(name, kind).unlink(missing_ok=True)

    def progress(self, name: str) -> WebhookProgress:
        """Return how far a webhook has come."""
        return WebhookProgress(**json.loads(self._path(name, "progress").read_text()))

    def save(self, name: str, progress: WebhookProgress) -> None:
        """Keep how far a webhook has come."""
        _write(self._path(name, "progress"), asdict(progress))

    def bury(self, name: str, letter: dict[str, Any], count: int) -> None:
        """Append a dead letter, the `count`th; as a line of JSON."""
        if count <= MOST_DEAD:
            with self._path(name, "dead").open("a") as file:
                file.write(json.dumps(letter) + "\n")

    def dead(self, name: str) -> list[dict[str, Any]]:
        """Return the dead letters of a webhook, the oldest first."""
        path = self._path(name, "dead")
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the directory: two processes would send each event twice.

        Raises:
            WrongState: Another process holds it.
        """
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"another `sandmesh webhook run` sends the webhooks of {self.folder}"
                raise WrongState(message, {"state": "RUNNING"}) from None
            yield

    def _path(self, name: str, kind: str) -> Path:
        return self.folder / f"{name}.{kind}.json"


def check(hook: Hook) -> None:
    """Check what a person wrote of a webhook.

    Raises:
        InvalidArgument: Something has another form.
    """
    if not _NAME.fullmatch(hook.name):
        raise InvalidArgument("a webhook's name has up to 63 lower-case letters, digits and dashes", {"field": "name"})
    try:
        parts = urlsplit(hook.url)
        proper = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        _ = parts.port
    except ValueError:
        proper = False
    if not proper:
        raise InvalidArgument(f"{hook.url!r} is not a URL of a webhook: write https://host/path", {"field": "url"})
    if not hook.give_up_seconds > 0:
        raise InvalidArgument("a webhook gives up after a time above 0", {"field": "give_up"})
    if hook.form == CLOUD_EVENTS:
        sign(hook.secret, "", 0, b"")


def _write(path: Path, fields: dict[str, Any]) -> None:
    with open_replacement(str(path), mode=0o600) as file:
        file.write(json.dumps(fields).encode())

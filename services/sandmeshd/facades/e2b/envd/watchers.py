"""Watches of directories: changes as E2B's clients read them, as they come or when they are asked for."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

from sandmesh.errors import SandmeshError
from sandmesh.files import ChangeStream
from sandmeshd.facades.e2b.envd import disk
from sandmeshd.facades.e2b.envd.entries import read_entry
from sandmeshd.facades.e2b.guests import Guest

_CREATE, _WRITE = "EVENT_TYPE_CREATE", "EVENT_TYPE_WRITE"
_TYPES: Final = {
    "created": _CREATE,
    "modified": _WRITE,
    "attributes": "EVENT_TYPE_CHMOD",
    "deleted": "EVENT_TYPE_REMOVE",
    "moved_out": "EVENT_TYPE_RENAME",
    "moved_in": _CREATE,
}
_UNFINISHED: Final = re.compile(r"\.sandmesh-[0-9a-f]+$|#\d+$")
"""Names that files have only while they are written: they get their own when they are whole."""

_MOST_EVENTS: Final = 10_000
_NOTICED_SECONDS: Final = 1.0
"""How long the answer to a change waits until those who watch have seen it."""


class DirectoryChanges:
    """The changes of a directory from now on, for one who watches it."""

    def __init__(self, guest: Guest, path: str, stream: ChangeStream, *, recursive: bool, entries: bool) -> None:
        self._guest = guest
        self._path = path
        self._stream = stream
        self._recursive = recursive
        self._entries = entries
        self._expected: dict[str, list[asyncio.Event]] = {}
        self._written: dict[str, list[str]] = {}
        guest.watched.add(self)

    async def events(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield the changes; requesting the next says that the one before was handled."""
        async for change in self._stream:
            kind = _TYPES.get(change.kind)
            if kind is None or not change.path or _UNFINISHED.match(change.path.rpartition("/")[2]):
                continue
            for each in self._written.get(change.path, [kind]) if kind == _CREATE else [kind]:
                event: dict[str, Any] = {"name": change.path, "type": each}
                if self._entries:
                    # What is gone by now has no entry.
                    with suppress(OSError):
                        event["entry"] = await read_entry(self._guest.box, f"{self._path}/{change.path}")
                yield event
            for waiting in self._expected.get(change.path, ()):
                waiting.set()

    async def close(self) -> None:
        """End the watch."""
        self._guest.watched.discard(self)
        for waiting in [event for all_ in self._expected.values() for event in all_]:
            waiting.set()
        with suppress(SandmeshError, OSError):
            await self._stream.aclose()

    def name_of(self, path: str) -> str | None:
        """Return a path of the sandbox as those who watch know it; None where it is not among what they watch."""
        name = posixpath.relpath(path, self._path)
        outside = name == "." or name.startswith("..")
        return None if outside or ("/" in name and not self._recursive) else name

    def expect(self, name: str, written: list[str] | None) -> asyncio.Event:
        """Return what is set once a change of `name` was handled; one of a write is reported as `written`."""
        noticed = asyncio.Event()
        self._expected.setdefault(name, []).append(noticed)
        if written is not None:
            self._written[name] = written
        return noticed

    def forget(self, name: str, noticed: asyncio.Event) -> None:
        """Expect a change no more."""
        self._expected[name].remove(noticed)
        if not self._expected[name]:
            del self._expected[name]
            self._written.pop(name, None)


@asynccontextmanager
async def noticed(guest: Guest, path: str, *, written: bool = False) -> AsyncGenerator[None]:
    """Change a path in the block: it ends once those who watch have seen that, or a second after the change.

    A file that is `written` gets its name when it is whole. Those who watch are told that it was written, and of one
    that was not there that it was created first.
    """
    watched = [(one, name) for one in guest.watched if (name := one.name_of(path)) is not None]
    if not watched:
        yield
        return
    is_new = written and not await exists(guest, path)
    events = [*([_CREATE] if is_new else []), _WRITE] if written else None
    expected = [(one, name, one.expect(name, events)) for one, name in watched]
    try:
        yield
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTICED_SECONDS):
                for _, _, noticed in expected:
                    await noticed.wait()
    finally:
        for one, name, noticed in expected:
            one.forget(name, noticed)


async def exists(guest: Guest, path: str) -> bool:
    """Return whether there is something at a path, also a link that leads nowhere."""
    try:
        await disk.stat(guest.box, path, follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class ChangeCollector:
    """Collects the changes below a path until they are requested; without requests the oldest are dropped."""

    def __init__(self, changes: DirectoryChanges) -> None:
        self.ended = False
        self._changes = changes
        self._events: list[dict[str, Any]] = []
        self._task = asyncio.create_task(self._collect())

    def take(self) -> list[dict[str, Any]]:
        """Return the changes since the last time."""
        taken, self._events = self._events, []
        return taken

    async def close(self) -> None:
        """End the watch."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._changes.close()

    async def _collect(self) -> None:
        try:
            with suppress(SandmeshError, OSError):
                async with aclosing(self._changes.events()) as events:
                    async for event in events:
                        self._events.append(event)
                        del self._events[:-_MOST_EVENTS]
        finally:
            self.ended = True

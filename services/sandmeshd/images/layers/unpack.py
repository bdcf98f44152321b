"""Starts the program that unpacks a layer, and reads what comes of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sandmeshd
from sandmesh.errors import InvalidArgument, RuntimeUnavailable, SandmeshError, TooLarge
from sandmeshd.runtime.user_namespaces.subordinate import PROGRAMS, Subordinate, find_subordinate

IDS: Final = 65536
"""How many uids and gids an image may use, as Docker and Podman have it."""

_PROGRAM: Final = "import sys; sys.path[:0] = sys.argv[2:]; from sandmeshd.images.layers.program import main; main()"
_ERRORS: Final[dict[str, type[SandmeshError]]] = {"bad": InvalidArgument, "large": TooLarge, "full": RuntimeUnavailable}


@dataclass(frozen=True)
class Unpacked:
    """What an unpacked layer is: the digest of its tar, bytes and number of its files, and what was left out."""

    diff_id: str
    size: int
    files: int
    left_out: dict[str, int]
    implied: list[str] = field(default_factory=list[str])
    """Directories that it has without an entry, which are to be as lower layers have them."""


@dataclass(frozen=True)
class LayerLimits:
    """What a layer may have at most."""

    bytes: int
    files: int


def require_owners() -> range | None:
    """Return the subordinate ids that an ordinary user's layers have; None for root, whose layers have their own.

    Raises:
        RuntimeUnavailable: This user has too few; the fix says how to get them.
    """
    if os.geteuid() == 0:
        return None
    found = find_subordinate()
    if len(found.uids) < IDS:
        raise _too_few(found)
    return found.uids[:IDS]


def _too_few(found: Subordinate) -> RuntimeUnavailable:
    lacking = found.lacking or f"this user has {len(found.uids)} subordinate ids, and images need {IDS}"
    wanted = "100000-165535"
    fix = found.fix or f"grant more: usermod --add-subuids {wanted} --add-subgids {wanted} USER"
    return RuntimeUnavailable(f"images cannot be unpacked: {lacking}: {fix}", {"fix": fix})


async def unpack_layer(
    blob: Path, target: Path, limits: LayerLimits, progress: Callable[[int], None] = lambda read: None
) -> Unpacked:
    """Unpack a layer into an empty directory; `progress` gets how many bytes of its tar were read.

    Raises:
        InvalidArgument: It is damaged or hostile.
        TooLarge: It is larger than the limits.
        RuntimeUnavailable: The disk is full, or this user has no subordinate ids.
    """
    owners = require_owners()
    arguments = {
        "blob": str(blob),
        "target": str(target),
        "bytes": limits.bytes,
        "files": limits.files,
        "namespace": owners is not None,
    }
    root = str(Path(next(iter(sandmeshd.__path__))).parent)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", _PROGRAM, json.dumps(arguments), root),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        return await _follow(process, owners, progress)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _follow(
    process: asyncio.subprocess.Process, owners: range | None, progress: Callable[[int], None]
) -> Unpacked:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: PT018, S101
    async for line in process.stdout:
        match json.loads(line):
            case {"waits": "map"} if owners is not None:
                await asyncio.to_thread(_write_maps, process.pid, owners)
                process.stdin.write(b"\n")
            case {"read": int(read)}:
                progress(read)
            case {"done": done}:
                return Unpacked(**done)
            case {"failed": str(kind), "message": str(message)}:
                raise _failed(kind, message)
            case _:
                break
    detail = (await process.stderr.read()).decode(errors="replace")
    raise RuntimeUnavailable(f"the program that unpacks layers ended: {detail[-2000:]}", {"fix": "report this"})


def _failed(kind: str, message: str) -> SandmeshError:
    facts: dict[str, str] = {}
    if kind == "full":
        facts["fix"] = "free space there, remove images (sandmesh image prune), or choose another SANDMESH_IMAGES"
        message = f"the disk is full: {facts['fix']}"
    return _ERRORS.get(kind, RuntimeUnavailable)(message, facts)


def _write_maps(pid: int, owners: range) -> None:
    """Map the ids of images to the subordinate ones, and the number behind them to this user."""
    for program, own in zip(PROGRAMS, (os.geteuid(), os.getegid()), strict=True):
        lines: tuple[Any, ...] = (0, owners.start, len(owners), len(owners), own, 1)
        done = subprocess.run([program, *map(str, (pid, *lines))], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeUnavailable(
                f"{program} failed: {done.stderr.strip()}", {"fix": "check /etc/subuid and /etc/subgid"}
            )

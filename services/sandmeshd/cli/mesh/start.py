"""Starts a mesh: in this process, or in one of its own that goes on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import structlog

from sandmesh.errors import MeshUnavailable, SandmeshError
from sandmesh.shared.child_process import read_error
from sandmeshd.cli.config.environment import read_notes, read_settings
from sandmeshd.cli.mesh.announcement import Announcer, Ready, ToPerson, ToStarter
from sandmeshd.cli.mesh.host import host
from sandmeshd.cli.terminal.lifetime import run_to_end, run_until_told
from sandmeshd.mesh import MeshSettings
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.heap import keep_freed_memory
from sandmeshd.runtime.logs import configure_logging

log = structlog.get_logger()

LAST_WORDS = 2_000
LARGEST_LOG = 8 * 1024 * 1024


def start_here(given: dict[str, object], ready_fd: int | None, *, as_json: bool) -> None:
    """Run a mesh in this process until it is told to end."""
    if ready_fd is None:
        run_until_told(_host(given, ToPerson(as_json=as_json)))
        return
    starter = ToStarter(ready_fd)
    try:
        run_until_told(_host(given, starter))
    except SandmeshError as error:
        starter.failed(error)
        raise


async def _host(given: Mapping[str, Any], announcer: Announcer) -> None:
    settings = _read(given)
    configure_logging(settings.log_level, settings.log_format)
    for name, why in read_notes(settings, given["config"]).items():
        log.info("a setting is as it was by default and has no effect here", setting=name, detail=why)
    keep_freed_memory()
    with full_disk_explained(settings.state_directory):
        await host(settings, announcer)


def _read(given: Mapping[str, Any]) -> MeshSettings:
    # Who starts a mesh by hand means to end it whole, unless somebody says otherwise.
    return read_settings(defaults={"keep_sandboxes": False}, **given)


def start_apart(given: dict[str, object], arguments: Sequence[str], *, as_json: bool) -> None:
    """Start a mesh in a process of its own and return when it is ready.

    Raises:
        SandmeshError: What stands in the way of the mesh.
    """
    settings = _read(given)
    log = settings.paths.state / "mesh.log"
    with full_disk_explained(settings.state_directory):
        settings.paths.make()
        run_to_end(_started(settings, arguments, log, ToPerson(as_json=as_json)))


async def _started(settings: MeshSettings, arguments: Sequence[str], log: Path, person: ToPerson) -> None:
    reading, writing = os.pipe()
    with _opened(log) as file, os.fdopen(reading, "rb") as lines:
        process = _spawn([*arguments, "--ready-fd", str(writing)], writing, file)
        os.close(writing)
        try:
            found = await _follow(lines, person)
        except BaseException:
            process.terminate()
            await asyncio.to_thread(process.wait)
            raise
    if found is None:
        raise _ended_early(log)
    addresses, named, http = (tuple(found[name]) for name in ("addresses", "base_urls", "http"))
    person.ready(Ready(addresses, named, http, found["pid"], found["keep"], str(log)))


def _ended_early(log: Path) -> MeshUnavailable:
    detail = log.read_text(errors="replace")[-LAST_WORDS:].strip()
    fix = f"see {log}"
    return MeshUnavailable(f"the mesh ended before it was ready: {fix}", {"detail": detail, "fix": fix})


def _spawn(arguments: Sequence[str], ready: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sandmeshd.cli.user", "up", *arguments]
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=nothing, stdout=log, stderr=log, pass_fds=(ready,), start_new_session=True, cwd="/"
    )


def _opened(log: Path) -> IO[bytes]:
    if log.exists() and log.stat().st_size > LARGEST_LOG:
        log.replace(log.with_suffix(".log.1"))
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")


async def _follow(lines: IO[bytes], person: ToPerson) -> dict[str, Any] | None:
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), lines)
    try:
        with person.progress() as progress:
            async for line in stream:
                said = json.loads(line)
                if "progress" in said:
                    progress(said["progress"]["message"], said["progress"]["fraction"])
                elif "error" in said:
                    raise read_error(said)
                else:
                    ready: dict[str, Any] = said["ready"]
                    return ready
    finally:
        transport.close()
    return None

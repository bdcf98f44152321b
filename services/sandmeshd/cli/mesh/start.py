"""Starts a mesh: in this process, or in a background process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import structlog

from sandmesh.errors import MeshUnavailable, SandmeshError
from sandmesh.shared.child_process import read_error
from sandmeshd.cli.config.environment import log_remarks, read_notes, read_settings
from sandmeshd.cli.config.traces import configure_traces
from sandmeshd.cli.mesh.log_file import open_log, rotated
from sandmeshd.cli.mesh.start_report import ConsoleReporter, PipeReporter, StartedMesh, StartReporter, base_urls
from sandmeshd.cli.mesh.worker_supervisor import open_workers
from sandmeshd.cli.terminal.lifetime import run_command, run_service
from sandmeshd.mesh import Mesh, MeshSettings, open_mesh
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.processes.descriptors import set_process_limits
from sandmeshd.runtime.processes.heap import tune_heap
from sandmeshd.runtime.telemetry.logs import configure_logging

log = structlog.get_logger()

Adapt = Callable[[MeshSettings], MeshSettings]

KEEP_SIGNAL = signal.SIGUSR1
"""Ends a mesh as SIGTERM does, but keeps its sandboxes."""

DETAIL_CHARACTERS = 2_000


def start_in_foreground(
    arguments: dict[str, object],
    ready_fd: int | None,
    *,
    as_json: bool,
    defaults: Mapping[str, object] = MappingProxyType({}),
    adapt: Adapt = lambda settings: settings,
) -> None:
    """Run a mesh in this process until a signal ends it.

    `defaults` are settings that anything else overrides; `adapt` changes those that were read.
    """
    if ready_fd is None:
        run_service(_serve(arguments, ConsoleReporter(as_json=as_json), defaults, adapt))
        return
    parent = PipeReporter(ready_fd)
    try:
        run_service(_serve(arguments, parent, defaults, adapt))
    except SandmeshError as error:
        parent.failed(error)
        raise


async def _serve(
    arguments: Mapping[str, Any], reporter: StartReporter, defaults: Mapping[str, object], adapt: Adapt
) -> None:
    settings = adapt(_read_settings(arguments, defaults))
    configure_logging(settings.log_level, settings.log_format)
    configure_traces("sandmesh", settings.traces_per_second)
    for name, why in read_notes(settings, arguments["config"]).items():
        log.info("a setting has its default value and no effect here", setting=name, detail=why)
    log_remarks(arguments["config"])
    tune_heap()
    set_process_limits()
    with full_disk_explained(settings.state_directory):
        await _run_mesh(settings, reporter)


async def _run_mesh(settings: MeshSettings, reporter: StartReporter) -> None:
    async with rotated(settings.paths.log), AsyncExitStack() as stack:
        with reporter.progress() as progress:
            mesh = await stack.enter_async_context(open_mesh(settings, progress))
            http = await mesh.http.open()
            await stack.enter_async_context(open_workers(settings, mesh.addresses, http))
        asyncio.get_running_loop().add_signal_handler(KEEP_SIGNAL, _end_and_keep, mesh)
        urls = base_urls(mesh.addresses, tls=settings.gateway.tls_cert is not None)
        kept, e2b = settings.keep_sandboxes, mesh.e2b or None
        started = StartedMesh(mesh.addresses, urls, http, os.getpid(), kept, None, e2b, mesh.doors or None)
        reporter.ready(started)
        await asyncio.Event().wait()


def _end_and_keep(mesh: Mesh) -> None:
    mesh.ending.keep = True
    signal.raise_signal(signal.SIGTERM)


def _read_settings(arguments: Mapping[str, Any], defaults: Mapping[str, object] = MappingProxyType({})) -> MeshSettings:
    # A mesh that is started by hand ends with its sandboxes, unless a setting says otherwise.
    return read_settings(defaults={"keep_sandboxes": False, **defaults}, **arguments)


def start_in_background(arguments: dict[str, object], command_line: Sequence[str], *, as_json: bool) -> None:
    """Start a mesh in a background process and return when it is ready.

    Raises:
        SandmeshError: The mesh could not start.
    """
    settings = _read_settings(arguments)
    log_path = settings.paths.log
    with full_disk_explained(settings.state_directory):
        settings.paths.make()
        run_command(_start(command_line, log_path, ConsoleReporter(as_json=as_json)))


async def _start(command_line: Sequence[str], log_path: Path, console: ConsoleReporter) -> None:
    read_end, write_end = os.pipe()
    with open_log(log_path) as log_file, os.fdopen(read_end, "rb") as lines:
        process = _spawn([*command_line, "--ready-fd", str(write_end)], write_end, log_file)
        os.close(write_end)
        try:
            ready = await _follow(lines, console)
        except BaseException:
            process.terminate()
            await asyncio.to_thread(process.wait)
            raise
    if ready is None:
        raise _exited_early(log_path)
    addresses, urls, http = (tuple(ready[name]) for name in ("addresses", "base_urls", "http"))
    doors = (ready.get("e2b"), ready.get("doors"))
    console.ready(StartedMesh(addresses, urls, http, ready["pid"], ready["keep"], str(log_path), *doors))


def _exited_early(log_path: Path) -> MeshUnavailable:
    detail = log_path.read_text(errors="replace")[-DETAIL_CHARACTERS:].strip()
    fix = f"see {log_path}"
    return MeshUnavailable(f"the mesh exited before it was ready: {fix}", {"detail": detail, "fix": fix})


def _spawn(arguments: Sequence[str], ready_fd: int, log_file: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sandmeshd.cli.user", "up", *arguments]
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=null, stdout=log_file, stderr=log_file, pass_fds=(ready_fd,), start_new_session=True, cwd="/"
    )


async def _follow(lines: IO[bytes], console: ConsoleReporter) -> dict[str, Any] | None:
    """Return what the mesh reports when it is ready; None where it exits before."""
    stream = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), lines)
    try:
        with console.progress() as progress:
            async for line in stream:
                message = json.loads(line)
                if "progress" in message:
                    progress(message["progress"]["message"], message["progress"]["fraction"])
                elif "error" in message:
                    raise read_error(message)
                else:
                    ready: dict[str, Any] = message["ready"]
                    return ready
    finally:
        transport.close()
    return None

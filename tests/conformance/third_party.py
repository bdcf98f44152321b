"""The core of the conformance suite on the driver that SANDMESH_DRIVER names: prints each requirement's failure."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.drivers.conformance import CORE, Boundary, Subject
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import open_driver
from sandmeshd.mesh.sweep import remove
from sandmeshd.runtime.telemetry.logs import configure_logging
from tests.conformance.conftest import below

WRITABLE = frozenset({"/proc", "/dev", "/dev/pts", "/dev/shm", "/tmp", "/home/sandbox", "/workspace"})


def _leftovers(settings: MeshSettings) -> Iterator[str]:
    paths = settings.paths
    for root in (paths.sandboxes, paths.agents):
        yield from map(str, root.glob("*"))
    # The command lines of its bwraps name the mesh's folders.
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(paths.state).encode() in process.read_bytes():
                yield str(process)
        except (FileNotFoundError, ProcessLookupError):
            continue


def _processes(settings: MeshSettings, sandbox_id: str) -> list[int]:
    init = MeshFolders(settings.paths).folder(sandbox_id).status_value("child-pid")
    assert init is not None
    return below(init)


async def run() -> dict[str, str]:
    """Return the failures of the core by requirement, empty where it holds."""
    settings = read_settings(mesh_id=f"suite-{secrets.token_hex(5)}")
    settings.paths.make()
    subject = Subject(
        open=lambda: open_driver(settings),
        mesh_id=settings.mesh_id,
        template="base",
        unprepared=None,
        leftovers=lambda: set(_leftovers(settings)),
        boundary=Boundary(
            writable_mounts=WRITABLE, processes=lambda sandbox_id: _processes(settings, sandbox_id), hidden=("/root",)
        ),
    )
    found: dict[str, str] = {}
    try:
        async with subject.open() as driver:
            async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template="base")):
                pass
        for requirement in CORE:
            try:
                async with asyncio.timeout(60):
                    await requirement(subject)
            except Exception as error:
                found[requirement.__name__] = f"{type(error).__name__}: {error}"
            else:
                found[requirement.__name__] = ""
    finally:
        remove(settings.paths)
    return found


if __name__ == "__main__":
    configure_logging("WARNING", stream=sys.stderr)
    json.dump(asyncio.run(run()), sys.stdout)

"""A driver in a process of its own: makes a sandbox, says so, and waits to be killed.

Arguments: the mesh's id, the state and runtime directories, whether its sandboxes end with it ("yes" or "no"), and how
many it prepares ahead of their create.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.runtime.paths import MeshPaths


async def main(mesh_id: str, state: str, runtime: str, ends: str, spares: str = "0") -> None:
    paths = MeshPaths(mesh_id, Path(state), Path(runtime))
    spec = sandbox_pb2.SandboxSpec(template="base")
    settings = BubblewrapSettings(
        paths=paths, ends_with_driver=ends == "yes", stands_by=spares != "0", spares=int(spares)
    )
    async with open_driver(settings) as driver:
        await driver.create_sandbox(pb.CreateSandboxRequest(sandbox_id="one", mesh_id=mesh_id, spec=spec))
        sys.stderr.write("made\n")
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))

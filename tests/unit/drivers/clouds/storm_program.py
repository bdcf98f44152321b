"""A driver that creates and deletes until it is killed: `python -m ... DRIVER MESH FOLDER ENDPOINT SECRET`."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from pydantic import SecretStr

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandmeshError
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import open_plugin
from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.clouds.region import KEYS

AT_ONCE = 4
SETTINGS = {"fc": FcSettings, "agentrun": AgentRunSettings}


async def work(driver: Driver, mesh_id: str, worker: int) -> None:
    """Create and delete without end."""
    for number in itertools.count():
        name = f"w{worker}-{os.getpid()}-{number}"
        spec = sandbox_pb2.SandboxSpec(template="base")
        try:
            await driver.create_sandbox(pb.CreateSandboxRequest(sandbox_id=name, mesh_id=mesh_id, spec=spec))
            sys.stdout.write(f"made {name}\n")
            sys.stdout.flush()
            if number % 2:
                await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))
        except SandmeshError as error:
            sys.stderr.write(f"{error}\n")


async def main(driver_name: str, mesh_id: str, folder: Path, endpoint: str, secret: str) -> None:
    """Open the driver, and work."""
    [(key, key_secret)] = KEYS.items()
    settings = SETTINGS[driver_name](
        paths=MeshPaths(mesh_id, folder / "state", folder / "runtime"),
        endpoint=endpoint,
        access_key_id=key,
        access_key_secret=SecretStr(key_secret),
        egress=EgressSettings(mesh_secret=SecretStr(secret)),
        lost_seconds=2,
    )
    async with open_plugin(driver_name, settings) as driver:
        await asyncio.gather(*(work(driver, mesh_id, worker) for worker in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:]))

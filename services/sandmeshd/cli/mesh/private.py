"""A mesh for one program: a child process that ends when the pipe to its owner closes.

Run as `python -m sandmeshd.cli.mesh.private --owner-fd N --ready-fd M` by `sandmesh.shared.child_process`. Its status
messages are progress, then the address or an error.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys

import uvloop

from sandmesh.errors import SandmeshError
from sandmeshd.cli.config.environment import log_remarks, read_settings
from sandmeshd.cli.config.traces import configure_traces
from sandmeshd.cli.terminal.lifetime import run_until
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.runtime.full_disk import full_disk_explained
from sandmeshd.runtime.processes.descriptors import set_process_limits
from sandmeshd.runtime.processes.heap import tune_heap
from sandmeshd.runtime.processes.owner import Owner, StatusPipe, find_owner
from sandmeshd.runtime.telemetry.logs import configure_logging


def main() -> None:
    """Run the command line."""
    uvloop.run(_run(find_owner("sandmeshd.cli.mesh.private", __doc__)))


async def _run(owner: Owner) -> None:
    owner.watch(await owner.connect())
    try:
        settings = read_settings(mesh_id=f"private-{secrets.token_hex(6)}", ephemeral=True, listen=())
        configure_logging(os.environ.get("SANDMESH_LOG_LEVEL", "WARNING"))
        configure_traces("sandmesh", settings.traces_per_second)
        log_remarks()
        tune_heap()
        set_process_limits()
        with full_disk_explained(settings.state_directory):
            await run_until(owner.ended, _serve(settings, owner.status))
    except SandmeshError as error:
        owner.status.fail(error)
        sys.exit(1)


async def _serve(settings: MeshSettings, status: StatusPipe) -> None:
    async with open_mesh(settings, status.progress) as mesh:
        status.finish({"address": mesh.addresses[0]})
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()

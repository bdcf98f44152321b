"""A further gateway of a mesh, in a process that shares the mesh's ports, as the setting `workers` requests.

The mesh's process is its owner: it writes one line of JSON, the gateway's configuration, into the owner pipe.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvloop

from sandmeshd.auth.channels import open_channel
from sandmeshd.cli.config.traces import configure_traces
from sandmeshd.cli.terminal.lifetime import run_until
from sandmeshd.gateway import open_gateway
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.app import gateway_settings, identities
from sandmeshd.runtime.processes.descriptors import set_process_limits
from sandmeshd.runtime.processes.heap import tune_heap
from sandmeshd.runtime.processes.owner import Owner, StatusPipe, find_owner
from sandmeshd.runtime.telemetry.logs import configure_logging


def main() -> None:
    """Run the command line."""
    uvloop.run(_run(find_owner("sandmeshd.cli.mesh.worker", __doc__)))


async def _run(owner: Owner) -> None:
    reader = await owner.connect()
    config: dict[str, Any] = json.loads(await reader.readline())
    owner.watch(reader)
    settings = MeshSettings.model_validate(config["settings"])
    configure_logging(settings.log_level, settings.log_format)
    configure_traces("sandmesh-gateway", settings.traces_per_second)
    tune_heap()
    set_process_limits()
    await run_until(owner.ended, _serve(settings, config, owner.status))


async def _serve(settings: MeshSettings, config: dict[str, Any], status: StatusPipe) -> None:
    gateway_config = gateway_settings(settings, tuple(config["listen"]))
    async with (
        open_channel(config["internal"], identities(settings)) as channel,
        open_gateway(gateway_config, channel, channel) as gateway,
    ):
        await gateway.http.open()
        status.finish({"ready": True})
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()

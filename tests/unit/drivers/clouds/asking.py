"""What tests ask of a cloud's driver."""

from __future__ import annotations

from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.clouds.settings import CloudSettings


def request(settings: CloudSettings, name: str = "one", **fields: Any) -> pb.CreateSandboxRequest:
    spec = sandbox_pb2.SandboxSpec(template="base", **fields)
    return pb.CreateSandboxRequest(sandbox_id=name, mesh_id=settings.paths.mesh_id, spec=spec)


async def create(driver: Driver, settings: CloudSettings, name: str = "one", **fields: Any) -> pb.RuntimeSandbox:
    return (await driver.create_sandbox(request(settings, name, **fields))).sandbox


async def delete(driver: Driver, name: str = "one") -> None:
    await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))


async def inspect(driver: Driver, name: str = "one") -> pb.RuntimeSandbox:
    return (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=name))).sandbox


async def listed(driver: Driver, settings: CloudSettings) -> list[pb.RuntimeSandbox]:
    return list((await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=settings.paths.mesh_id))).sandboxes)


async def ended(driver: Driver, settings: CloudSettings) -> pb.RuntimeSandbox:
    async for change in driver.watch_sandboxes(pb.WatchSandboxesRequest(mesh_id=settings.paths.mesh_id)):
        if change.sandbox.state == pb.RUNTIME_STATE_ENDED:
            return change.sandbox
    raise AssertionError("the watch ended")

"""A driver with the egress proxy around it, which serves each sandbox whose grant allows any host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import SandmeshError
from sandmeshd.drivers.api.forwarder import ForwardingDriver
from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.egress.grants import policy_of
from sandmeshd.drivers.egress.outlets import Outlet
from sandmeshd.drivers.egress.proxy import EgressProxy, open_proxy
from sandmeshd.drivers.egress.resolver import Resolver
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.subscribers import Subscribers, merged
from sandmeshd.runtime.listeners import Listeners
from sandmeshd.runtime.paths import MeshPaths


class EgressGuard(ForwardingDriver):
    """A Driver whose sandboxes have the egress that they were granted; the driver itself only configures agents."""

    def __init__(self, driver: Driver, mesh_id: str, proxy: EgressProxy, settings: EgressSettings) -> None:
        super().__init__(driver)
        self._mesh_id = mesh_id
        self._proxy = proxy
        self._settings = settings
        self._subscribers = Subscribers()
        self._defaults: dict[str, sandbox_pb2.NetworkGrant] = {}

    async def adopt(self) -> None:
        """Serve the egress of the sandboxes that run already."""
        listed = await self._driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=self._mesh_id))
        living = [sandbox for sandbox in listed.sandboxes if sandbox.state != pb.RUNTIME_STATE_ENDED]
        if living:
            await self.get_info(pb.GetInfoRequest())
        for sandbox in living:
            self._admit(sandbox)

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do, and remember its templates' grants."""
        info = await self._driver.get_info(request)
        self._defaults = {template.name: template.network for template in info.templates}
        return info

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox and serve its egress."""
        if request.spec.network.mode:
            policy_of(request.spec.network, self._settings)
        elif request.spec.template not in self._defaults:
            await self.get_info(pb.GetInfoRequest())
        made = await self._driver.create_sandbox(request)
        self._admit(made.sandbox)
        return made

    def _admit(self, sandbox: pb.RuntimeSandbox) -> None:
        explicit = sandbox.spec.network
        none = sandbox_pb2.NetworkGrant(mode=sandbox_pb2.NETWORK_MODE_NONE)
        grant = explicit if explicit.mode else self._defaults.get(sandbox.spec.template, none)

        async def alive() -> bool:
            return await self._is_alive(sandbox.sandbox_id)

        self._proxy.admit(sandbox, grant, alive, self._subscribers.publish)

    async def _is_alive(self, sandbox_id: str) -> bool:
        try:
            seen = await self._driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))
        except SandmeshError:
            return False
        return seen.sandbox.state != pb.RUNTIME_STATE_ENDED

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Stop a sandbox's egress and remove it."""
        await self._proxy.dismiss(request.sandbox_id)
        return await self._driver.delete_sandbox(request)

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send what the driver sends, and refusals of the egress proxy between."""
        with self._subscribers.subscribed() as queue:
            async with aclosing(merged(self._driver.watch_sandboxes(request), queue.follow())) as both:
                async for change in both:
                    if change.HasField("sandbox") or change.synced or request.mesh_id == self._mesh_id:
                        yield change


@asynccontextmanager
async def open_egress(
    driver: Driver,
    paths: MeshPaths,
    settings: EgressSettings,
    resolver: Resolver | None = None,
    outlet: Outlet | None = None,
) -> AsyncGenerator[Driver]:
    """Put the egress proxy around a driver of the mesh of `paths`; `resolver` and `outlet` replace the system's.

    Raises:
        InvalidArgument: The node's own proxy is not an http:// URL.
    """
    async with open_proxy(settings, Listeners(paths.listeners), resolver, outlet) as proxy:
        guarded = EgressGuard(driver, paths.mesh_id, proxy, settings)
        await guarded.adopt()
        yield guarded

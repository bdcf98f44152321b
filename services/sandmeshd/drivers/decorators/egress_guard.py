"""A driver with the egress proxy around it, which serves each sandbox whose grant allows any host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Generic, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, SandmeshError, SecretNotFound
from sandmesh.shared.files.atomic_file import open_replacement
from sandmeshd.contracts.driver import Driver
from sandmeshd.contracts.driver_forwarder import ForwardingDriver
from sandmeshd.drivers.egress.devices.leases import GROUP, Devices
from sandmeshd.drivers.egress.grants import is_open, policy_of
from sandmeshd.drivers.egress.proxy import EgressProxy, open_proxy
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.subscribers import Subscribers, merged
from sandmeshd.drivers.egress.upstream.outlets import Outlet
from sandmeshd.drivers.egress.upstream.resolver import Resolver
from sandmeshd.runtime.listeners import Listeners
from sandmeshd.runtime.paths import MeshPaths

M = TypeVar("M", bound=Message)


class KeptMessages(Generic[M]):
    """One file for each sandbox that has another message of a kind than it was made with."""

    def __init__(self, folder: Path, kind: type[M], unreadable: M | None = None) -> None:
        """Keep messages of a kind in a folder; `unreadable` is in force where a file cannot be read."""
        self._folder = folder
        self._kind = kind
        self._unreadable = unreadable

    def read(self, sandbox_id: str) -> M | None:
        """Return a sandbox's message, None where it was never changed."""
        path = self._folder / sandbox_id
        try:
            return self._kind.FromString(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, DecodeError) as error:
            fix = "change it again, or release the sandbox"
            log.warning(
                "a kept change cannot be read", sandbox_id=sandbox_id, path=str(path), error=str(error), fix=fix
            )
            return self._unreadable

    def write(self, sandbox_id: str, message: M) -> None:
        """Keep a message."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with open_replacement(str(self._folder / sandbox_id), 0o600) as file:
            file.write(message.SerializeToString())

    def remove(self, sandbox_id: str) -> None:
        """Forget a sandbox's message."""
        (self._folder / sandbox_id).unlink(missing_ok=True)


log = structlog.get_logger()


class EgressGuard(ForwardingDriver):
    """A Driver whose sandboxes have the egress that they were granted; the driver itself only configures agents."""

    def __init__(self, driver: Driver, paths: MeshPaths, proxy: EgressProxy, settings: EgressSettings) -> None:
        super().__init__(driver)
        self._mesh_id = paths.mesh_id
        # What a damaged file allowed is not known: nothing is allowed until the grant is changed again.
        closed = sandbox_pb2.NetworkGrant(mode=sandbox_pb2.NETWORK_MODE_NONE)
        self._kept = KeptMessages(paths.node_state / "grants", sandbox_pb2.NetworkGrant, closed)
        self._kept_secrets = KeptMessages(paths.node_state / "secrets", pb.ChangeNetworkRequest)
        self._proxy = proxy
        self._settings = settings
        self._subscribers = Subscribers()
        self._defaults: dict[str, sandbox_pb2.NetworkGrant] = {}
        self._with_device: set[str] = set()

    async def adopt(self) -> None:
        """Serve the egress of the sandboxes that run already."""
        listed = await self._driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=self._mesh_id))
        self._proxy.devices.keep(sandbox.sandbox_id for sandbox in listed.sandboxes)
        living = [sandbox for sandbox in listed.sandboxes if sandbox.state != pb.RUNTIME_STATE_ENDED]
        if living:
            await self.get_info(pb.GetInfoRequest())
        for sandbox in living:
            try:
                self._admit(sandbox)
            except SandmeshError as error:
                # A damaged grant or secret is one sandbox's, which then reaches nothing.
                fix = "change its network, or release it"
                log.warning("a sandbox has no egress", sandbox_id=sandbox.sandbox_id, error=error.message, fix=fix)

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do, and remember its templates' grants."""
        info = await self._driver.get_info(request)
        self._defaults = {template.name: template.network for template in info.templates}
        self._with_device = {template.name for template in info.templates if GROUP in template.tool_groups}
        info.capabilities.devices[:] = self._proxy.devices.serials
        info.capabilities.secrets = self._settings.mesh_secret is not None
        return info

    async def create_sandbox(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        """Create a sandbox and serve its egress."""
        if request.spec.secrets and self._settings.mesh_secret is None:
            message = "the driver was not given the mesh's secret, so it has no secrets: give it to its service"
            raise CapabilityMissing(message, {"needs": "secrets"})
        if request.spec.network.mode:
            policy_of(request.spec.network, self._settings)
        if request.spec.template not in self._defaults:
            await self.get_info(pb.GetInfoRequest())
        made = await self._create(request)
        self._admit(made.sandbox)
        return made

    async def _create(self, request: pb.CreateSandboxRequest) -> pb.CreateSandboxResponse:
        if request.spec.template not in self._with_device:
            return await self._driver.create_sandbox(request)
        devices, had = self._proxy.devices, self._proxy.devices.holds(request.sandbox_id)
        await devices.take(request.sandbox_id)
        try:
            return await self._driver.create_sandbox(request)
        except BaseException:
            if not had:
                devices.release(request.sandbox_id)
            raise

    async def install_token(self, request: pb.InstallTokenRequest) -> pb.InstallTokenResponse:
        """Install a token; a sandbox from a pool has an owner from then on."""
        installed = await self._driver.install_token(request)
        self._proxy.assign(request.sandbox_id, request.record_labels)
        return installed

    async def change_network(self, request: pb.ChangeNetworkRequest) -> pb.ChangeNetworkResponse:
        """Put a grant in force, end open connections that it does not allow, and return what is in force."""
        sandbox_id = request.sandbox_id
        found = await self._driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))
        info = await self.get_info(pb.GetInfoRequest())
        made_with = self._made_with(found.sandbox)
        current = self._kept.read(sandbox_id) or made_with
        # From here on nothing waits: a change is whole, and none comes between.
        if request.secrets:
            self._change_secrets(found.sandbox, request)
        if request.HasField("grant") and (current == request.replaces or not request.HasField("replaces")):
            _check_changeable(made_with, request.grant, info.capabilities)
            self._proxy.change(sandbox_id, request.grant)
            self._kept.write(sandbox_id, request.grant)
            current = request.grant
        return pb.ChangeNetworkResponse(grant=current, hosts=self._proxy.traffic(sandbox_id))

    def _change_secrets(self, sandbox: pb.RuntimeSandbox, request: pb.ChangeNetworkRequest) -> None:
        unknown = sorted(request.secrets.keys() - sandbox.spec.secrets.keys())
        if unknown:
            message = f"{sandbox.sandbox_id} has no secret {', '.join(unknown)}: its secrets are those it was made with"
            raise SecretNotFound(message, {"sandbox_id": sandbox.sandbox_id})
        self._proxy.change_secrets(sandbox.sandbox_id, request.secrets)
        kept = self._kept_secrets.read(sandbox.sandbox_id) or pb.ChangeNetworkRequest()
        for variable, secret in request.secrets.items():
            kept.secrets[variable].CopyFrom(secret)
        self._kept_secrets.write(sandbox.sandbox_id, kept)

    def _made_with(self, sandbox: pb.RuntimeSandbox) -> sandbox_pb2.NetworkGrant:
        explicit = sandbox.spec.network
        none = sandbox_pb2.NetworkGrant(mode=sandbox_pb2.NETWORK_MODE_NONE)
        return explicit if explicit.mode else self._defaults.get(sandbox.spec.template, none)

    def _admit(self, sandbox: pb.RuntimeSandbox) -> None:
        made_with = self._made_with(sandbox)
        if not is_open(made_with) and not self._proxy.devices.holds(sandbox.sandbox_id):
            return
        grant = self._kept.read(sandbox.sandbox_id) or made_with

        async def alive() -> bool:
            return await self._is_alive(sandbox.sandbox_id)

        self._proxy.admit(sandbox, grant, alive, self._subscribers.publish)
        changed = self._kept_secrets.read(sandbox.sandbox_id)
        if changed is not None:
            self._proxy.change_secrets(sandbox.sandbox_id, changed.secrets)

    async def _is_alive(self, sandbox_id: str) -> bool:
        try:
            seen = await self._driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))
        except SandmeshError:
            return False
        return seen.sandbox.state != pb.RUNTIME_STATE_ENDED

    async def delete_sandbox(self, request: pb.DeleteSandboxRequest) -> pb.DeleteSandboxResponse:
        """Stop a sandbox's egress and remove it."""
        await self._proxy.dismiss(request.sandbox_id)
        self._proxy.devices.release(request.sandbox_id)
        deleted = await self._driver.delete_sandbox(request)
        self._kept.remove(request.sandbox_id)
        self._kept_secrets.remove(request.sandbox_id)
        deleted.egress_bytes = self._proxy.forget_bytes(request.sandbox_id)
        return deleted

    async def list_sandboxes(self, request: pb.ListSandboxesRequest) -> pb.ListSandboxesResponse:
        """List what the driver has, unless only the bytes are asked for, and the bytes of its sandboxes."""
        listed = pb.ListSandboxesResponse() if request.only_egress else await self._driver.list_sandboxes(request)
        if request.mesh_id == self._mesh_id:
            listed.egress_bytes.update(self._proxy.bytes_by_sandbox())
        return listed

    async def watch_sandboxes(self, request: pb.WatchSandboxesRequest) -> AsyncIterator[pb.WatchSandboxesResponse]:
        """Send what the driver sends, and refusals of the egress proxy between."""
        with self._subscribers.subscribed() as queue:
            async with aclosing(merged(self._driver.watch_sandboxes(request), queue.follow())) as both:
                async for change in both:
                    if change.HasField("sandbox") or change.synced or request.mesh_id == self._mesh_id:
                        yield change


def _check_changeable(
    made_with: sandbox_pb2.NetworkGrant, grant: sandbox_pb2.NetworkGrant, able: pb.Capabilities
) -> None:
    if not is_open(made_with):
        message = "the sandbox was made with the network none, so nothing inside leads out: make another with a grant"
        raise CapabilityMissing(message, {"needs": "network"})
    if grant.mode not in able.network_modes:
        mode = sandbox_pb2.NetworkMode.Name(grant.mode).removeprefix("NETWORK_MODE_").lower()
        raise CapabilityMissing(f"the driver cannot enforce the network {mode!r}", {"needs": "network"})


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
    devices = Devices(paths.node_state / "devices", settings)
    async with open_proxy(settings, Listeners(paths.listeners), devices, resolver, outlet) as proxy:
        guarded = EgressGuard(driver, paths, proxy, settings)
        await guarded.adopt()
        yield guarded

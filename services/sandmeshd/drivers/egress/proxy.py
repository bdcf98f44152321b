"""The egress of a driver: one proxy for all its sandboxes, each with its own policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import structlog

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import MeshUnavailable, SandmeshError
from sandmeshd.auth.sealer import Sealer
from sandmeshd.drivers.egress.devices.leases import Devices, is_adb
from sandmeshd.drivers.egress.exchange import Exchange
from sandmeshd.drivers.egress.grants import policy_of
from sandmeshd.drivers.egress.link import EgressLink
from sandmeshd.drivers.egress.packages import warn_of_directories
from sandmeshd.drivers.egress.policy import read_hosts
from sandmeshd.drivers.egress.reports import Report, Reports
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.secrets.table import read_secrets
from sandmeshd.drivers.egress.secrets.termination import Termination, terminations
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import ProxyStream
from sandmeshd.drivers.egress.upstream.dialer import Dialer, Upstream
from sandmeshd.drivers.egress.upstream.outlets import Outlet, outlet_of
from sandmeshd.drivers.egress.upstream.resolver import Resolver
from sandmeshd.runtime.listeners import Listeners
from sandmeshd.runtime.resolver import SystemResolver
from sandmeshd.tenants.shares import Shares, tenant_of

log = structlog.get_logger()

_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
_SHARE = 8

Alive = Callable[[], Awaitable[bool]]


class EgressProxy:
    """The egress proxy of all sandboxes of a driver; opened by `open_proxy`."""

    def __init__(self, upstream: Upstream, devices: Devices) -> None:
        self._upstream = upstream
        self.devices = devices
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._dialers: dict[str, Dialer] = {}
        self._terminations: dict[str, Termination] = {}
        self._ended_bytes: dict[str, int] = {}
        self._new_termination = terminations(upstream.settings)
        self._shares = Shares("connections out of sandboxes", upstream.settings.total_connections)
        self._owners: dict[str, str] = {}

    def admit(self, sandbox: pb.RuntimeSandbox, grant: sandbox_pb2.NetworkGrant, alive: Alive, report: Report) -> None:
        """Serve a sandbox's egress until it is dismissed or no longer alive; `report` is called for each refusal.

        Raises:
            InvalidArgument: A host of the grant is not one, or a secret was sealed for others.
        """
        if sandbox.sandbox_id not in self._tasks:
            self.assign(sandbox.sandbox_id, sandbox.record_labels)
            dialer = Dialer(policy_of(grant, self._upstream.settings), self._upstream)
            termination = self._new_termination(sandbox)
            self._dialers[sandbox.sandbox_id] = dialer
            if termination is not None:
                self._terminations[sandbox.sandbox_id] = termination
            egress = _SandboxEgress(self, self._upstream, dialer, termination)
            task = asyncio.create_task(egress.serve(sandbox, alive, report))
            self._tasks[sandbox.sandbox_id] = task
            task.add_done_callback(lambda _: self._forget(sandbox.sandbox_id))

    def assign(self, sandbox_id: str, record_labels: Mapping[str, str]) -> None:
        """Count a sandbox's connections from now on as those of the owner that its labels name."""
        self._owners[sandbox_id] = tenant_of(record_labels)

    def change(self, sandbox_id: str, grant: sandbox_pb2.NetworkGrant) -> None:
        """Put a grant in force for a sandbox, and end its connections that it does not allow.

        Raises:
            InvalidArgument: A host of the grant is not one.
        """
        policy = policy_of(grant, self._upstream.settings)
        if sandbox_id in self._dialers:
            self._dialers[sandbox_id].change(policy)

    def change_secrets(self, sandbox_id: str, secrets: Mapping[str, sandbox_pb2.SandboxSecret]) -> None:
        """Replace values of a sandbox's secrets, for its next requests.

        Raises:
            InvalidArgument: One was sealed for others.
        """
        mesh_secret, termination = self._upstream.settings.mesh_secret, self._terminations.get(sandbox_id)
        if termination is not None and mesh_secret is not None:
            termination.secrets.change(read_secrets(secrets, Sealer(mesh_secret.get_secret_value())))

    def traffic(self, sandbox_id: str) -> list[sandbox_pb2.HostTraffic]:
        """Return the bytes and connections of a sandbox by host."""
        dialer = self._dialers.get(sandbox_id)
        return [] if dialer is None else dialer.traffic.hosts()

    def bytes_by_sandbox(self) -> dict[str, int]:
        """Return the bytes that sandboxes sent and received, by id, of ended ones until `forget_bytes`."""
        live = {sandbox_id: dialer.traffic.bytes() for sandbox_id, dialer in self._dialers.items()}
        return {sandbox_id: count for sandbox_id, count in (self._ended_bytes | live).items() if count}

    def forget_bytes(self, sandbox_id: str) -> int:
        """Return the bytes of a sandbox that was dismissed, and forget them."""
        return self._ended_bytes.pop(sandbox_id, 0)

    def _forget(self, sandbox_id: str) -> None:
        self._tasks.pop(sandbox_id, None)
        dialer = self._dialers.pop(sandbox_id, None)
        if dialer is not None:
            self._ended_bytes[sandbox_id] = dialer.traffic.bytes()
        self._terminations.pop(sandbox_id, None)
        self._owners.pop(sandbox_id, None)

    async def dismiss(self, sandbox_id: str) -> None:
        """Stop serving a sandbox."""
        self._owners.pop(sandbox_id, None)
        task = self._tasks.get(sandbox_id)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Stop serving all sandboxes."""
        await asyncio.gather(*(self.dismiss(name) for name in list(self._tasks)))

    def acquire(self, sandbox_id: str, held: int) -> str:
        """Count a new connection of a sandbox that holds some, and return whose it is, for `release`.

        A sandbox has an eighth of what is free, so that however many sandboxes of an owner want all there is, one that
        has none gets some; an owner has a quarter of all.

        Raises:
            MeshUnavailable: The sandbox or its owner has its share already.
        """
        owner = self._owners.get(sandbox_id, "")
        most = self._shares.part if owner else self._shares.most
        free = min(most - self._shares.used(owner), self._shares.most - self._shares.total)
        if held >= max(1, free // _SHARE):
            raise MeshUnavailable(f"a sandbox has at most 1/{_SHARE} of the connections that its owner has free")
        self._shares.take(owner)
        return owner

    def release(self, owner: str) -> None:
        """Count a connection of an owner as closed."""
        self._shares.give(owner)


class _Backoff:
    """The delay before the next attempt: longer each time, until one succeeds."""

    def __init__(self) -> None:
        self._delay = _FIRST_DELAY

    def reset(self) -> None:
        self._delay = _FIRST_DELAY

    def next(self) -> float:
        delay, self._delay = self._delay, min(self._delay * 2, _LONGEST_DELAY)
        return delay


class _SandboxEgress:
    """The egress of one sandbox."""

    def __init__(self, proxy: EgressProxy, upstream: Upstream, dialer: Dialer, termination: Termination | None) -> None:
        self._proxy = proxy
        self._termination = termination
        self._settings = upstream.settings
        self._dialer = dialer
        self._open = 0
        self._sandbox_id = ""

    async def serve(self, sandbox: pb.RuntimeSandbox, alive: Alive, report: Report) -> None:
        """Keep the link to the agent open, again after it breaks, while the sandbox lives."""
        self._sandbox_id = sandbox.sandbox_id
        reports = Reports(sandbox.sandbox_id, report)
        backoff = _Backoff()
        try:
            while await alive():
                await self._hold(EgressLink(sandbox, lambda stream: self._serve(stream, reports)), backoff, alive)
                await asyncio.sleep(backoff.next())
        finally:
            reports.close()

    async def _hold(self, link: EgressLink, backoff: _Backoff, alive: Alive) -> None:
        try:
            await link.run(backoff.reset)
        except SandmeshError as error:
            if await alive():
                log.info("a sandbox's egress is not served", error=error.message)
        except Exception:
            log.exception("a sandbox's egress failed unexpectedly")

    async def _serve(self, stream: ProxyStream, reports: Reports) -> None:
        exchange = Exchange(stream, self._dialer, self._termination, self._settings, reports.add)
        if self._open >= self._settings.connections:
            await exchange.refuse(f"too many simultaneous connections: a sandbox may have {self._settings.connections}")
            return
        try:
            owner = self._proxy.acquire(self._sandbox_id, self._open)
        except MeshUnavailable as error:
            await exchange.refuse(f"too many simultaneous connections: {error.message}")
            return
        self._open += 1
        try:
            if not await self._serve_device(stream):
                await exchange.serve()
        except Exception:
            log.exception("a connection out of a sandbox failed unexpectedly")
            await stream.reset()
        finally:
            self._open -= 1
            self._proxy.release(owner)

    async def _serve_device(self, stream: ProxyStream) -> bool:
        """Serve an adb client; return whether it was one."""
        try:
            async with asyncio.timeout(self._settings.head_seconds):
                holds = self._proxy.devices.holds(self._sandbox_id)
                if not holds or not is_adb(await stream.peek()):
                    return False
        except OSError:
            # TimeoutError is one: what opened the connection says nothing.
            await stream.reset()
            return True
        await self._proxy.devices.serve(self._sandbox_id, stream)
        return True


@asynccontextmanager
async def open_proxy(
    settings: EgressSettings,
    listeners: Listeners,
    devices: Devices,
    resolver: Resolver | None = None,
    outlet: Outlet | None = None,
) -> AsyncGenerator[EgressProxy]:
    """Open the egress proxy of a driver; `resolver` and `outlet` replace the system's.

    What `listeners` has is refused whatever the grant.

    Raises:
        InvalidArgument: The node's own proxy is not an http:// URL.
    """
    warn_of_directories(settings.indexes)
    resolver = resolver or SystemResolver()
    reserved = Reserved(resolver, read_hosts(settings.reserved), listeners)
    proxy = EgressProxy(Upstream(settings, resolver, outlet or outlet_of(settings), reserved), devices)
    try:
        yield proxy
    finally:
        await proxy.close()

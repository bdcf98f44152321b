"""Exposed ports of a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sandmesh._client.messages import EXPOSURE_KINDS, check_port, read_seconds
from sandmesh.api.port.v1 import port_pb2 as pb
from sandmesh.sandbox.handle import SandboxHandle

if TYPE_CHECKING:
    from sandmesh._client.connection import Connection


_VIEW_SECONDS = 3600.0


@dataclass(frozen=True)
class PortTarget:
    """The sandbox whose ports are exposed, and how its mesh is reached."""

    sandbox_id: str
    fencing_token: int
    timeout: float
    connect: Callable[[], Connection]


class ExposedPortAsync:
    """A port, or the browser, that a URL leads to until `expires`; anyone with the URL can use it.

    `kind` is "port", "devtools", "desktop", "browser" or "mobile", the last three with "-readonly" where the URL only
    shows it; `port` is 0 unless it is a port. `connections` is how many were open when this was made.
    """

    def __init__(self, target: PortTarget, port: pb.ExposedPort) -> None:
        self._target = target
        self.exposure_id = port.exposure_id
        self.kind = EXPOSURE_KINDS.get(port.kind, "unknown")
        self.port = port.port
        self.url = port.url
        self.expires: datetime = port.expire_time.ToDatetime(UTC)
        self.connections = port.connections

    async def revoke(self) -> None:
        """Revoke the URL and close the connections through it; a second revocation changes nothing."""
        target = self._target
        request = pb.RevokePortRequest(sandbox_id=target.sandbox_id, exposure_id=self.exposure_id)
        request.fencing_token = target.fencing_token
        await target.connect().ask(lambda stubs: stubs.ports.RevokePort, request, target.timeout)


class PortsAsync(SandboxHandle):
    """The methods of a box that are about exposed ports."""

    async def expose(self, port: int, *, ttl: float = 3600.0) -> ExposedPortAsync:
        """Expose a port of the sandbox by a URL that carries HTTP and WebSocket, for `ttl` seconds (1 to 30 days).

        Nothing needs to listen there yet. Anyone with the URL can use it until it is revoked.

        Raises:
            CapabilityMissing: The mesh serves no HTTP.
        """
        return await expose(self._port_target(), ttl, pb.ExposePortRequest(port=check_port(port)))

    async def list_exposed(self) -> list[ExposedPortAsync]:
        """List the exposed ports of the sandbox."""
        return await list_exposed(self._port_target())

    def _port_target(self) -> PortTarget:
        record = self._attached().record
        token, timeout = record.lease.fencing_token, self._config.timeout
        return PortTarget(record.sandbox_id, token, timeout, lambda: self._attached().usable())


async def expose(target: PortTarget, ttl: float, request: pb.ExposePortRequest) -> ExposedPortAsync:
    """Expose what a request names."""
    request.sandbox_id, request.fencing_token = target.sandbox_id, target.fencing_token
    request.ttl.FromNanoseconds(int(read_seconds("ttl", ttl) * 1e9))
    response = await target.connect().ask(lambda stubs: stubs.ports.ExposePort, request, target.timeout)
    return ExposedPortAsync(target, response.port)


async def list_exposed(target: PortTarget) -> list[ExposedPortAsync]:
    """List the exposed ports of a sandbox."""
    request = pb.ListExposedPortsRequest(sandbox_id=target.sandbox_id, fencing_token=target.fencing_token)
    response = await target.connect().ask(lambda stubs: stubs.ports.ListExposedPorts, request, target.timeout)
    return [ExposedPortAsync(target, port) for port in response.ports]


async def view_url(target: PortTarget, kind: pb.ExposureKind.ValueType) -> str:
    """Return a URL of a kind that is valid for half an hour at least: one that there is, else a new one."""
    until = datetime.now(UTC) + timedelta(seconds=_VIEW_SECONDS / 2)
    for each in await list_exposed(target):
        if each.url and each.kind == EXPOSURE_KINDS[kind] and each.expires > until:
            return each.url
    return (await expose(target, _VIEW_SECONDS, pb.ExposePortRequest(kind=kind))).url

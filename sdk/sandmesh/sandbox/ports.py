"""URLs of ports in a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sandmesh.api.port.v1 import port_pb2 as pb

if TYPE_CHECKING:
    from sandmesh._client.connection import Connection


@dataclass(frozen=True)
class Where:
    """The sandbox that ports are of."""

    sandbox_id: str
    fencing_token: int
    timeout: float
    connect: Callable[[], Connection]


class ExposedPortAsync:
    """A port that a URL leads to until `expires`; whoever has the URL may use it.

    `connections` is how many were open when this was made.
    """

    def __init__(self, where: Where, told: pb.ExposedPort) -> None:
        self._where = where
        self.exposure_id = told.exposure_id
        self.port = told.port
        self.url = told.url
        self.expires: datetime = told.expire_time.ToDatetime(UTC)
        self.connections = told.connections

    async def revoke(self) -> None:
        """End the URL and close the connections through it; one that has ended stays so."""
        where = self._where
        request = pb.RevokePortRequest(sandbox_id=where.sandbox_id, exposure_id=self.exposure_id)
        request.fencing_token = where.fencing_token
        await where.connect().ask(lambda stubs: stubs.ports.RevokePort, request, where.timeout)


async def expose(where: Where, port: int, ttl: float) -> ExposedPortAsync:
    """Make a URL of a port."""
    request = pb.ExposePortRequest(sandbox_id=where.sandbox_id, port=port, fencing_token=where.fencing_token)
    request.ttl.FromNanoseconds(int(ttl * 1e9))
    answer = await where.connect().ask(lambda stubs: stubs.ports.ExposePort, request, where.timeout)
    return ExposedPortAsync(where, answer.port)


async def list_exposed(where: Where) -> list[ExposedPortAsync]:
    """Give the URLs that are good now."""
    request = pb.ListExposedPortsRequest(sandbox_id=where.sandbox_id, fencing_token=where.fencing_token)
    answer = await where.connect().ask(lambda stubs: stubs.ports.ListExposedPorts, request, where.timeout)
    return [ExposedPortAsync(where, told) for told in answer.ports]

"""What a running sandbox may reach, what it has reached, and the secrets that its requests get."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandmesh._client.messages import read_network, write_network
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.api.secret.v1 import secret_pb2
from sandmesh.inputs import NetworkGrant, NetworkInput
from sandmesh.shared.secret_rules import check_secret_value

if TYPE_CHECKING:
    from sandmesh._client.connection import Connection


@dataclass(frozen=True)
class HostTraffic:
    """What went to one host since the driver started; bytes include the heads of requests and responses."""

    host: str
    connections: int
    open_connections: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True)
class NetworkState:
    """The grant in force, and the traffic by host."""

    grant: NetworkGrant
    hosts: tuple[HostTraffic, ...]


class NetworkAsync:
    """The network of a running sandbox: `box.network`.

    A change applies to new connections immediately; open ones that are no longer allowed are closed. Each method
    returns the grant in force, and raises InvalidArgument where a host is not one, and CapabilityMissing where the
    sandbox was made with the network none.
    """

    def __init__(self, sandbox_id: str, connect: Callable[[], Connection], timeout: float) -> None:
        self._sandbox_id = sandbox_id
        self._connect = connect
        self._timeout = timeout

    async def show(self) -> NetworkState:
        """Return the grant in force, and the bytes and connections of each host."""
        request = pb.GetNetworkRequest(sandbox_id=self._sandbox_id)
        found = await self._connect().ask(lambda stubs: stubs.sandboxes.GetNetwork, request, self._timeout)
        return NetworkState(read_network(found.grant), tuple(map(_read_traffic, found.hosts)))

    async def allow(self, *hosts: str) -> NetworkGrant:
        """Allow further hosts, as a grant names them, or "public"."""
        return await self._change(pb.ChangeNetworkRequest(allow=hosts))

    async def deny(self, *hosts: str) -> NetworkGrant:
        """Take hosts out of the grant, or "public"; one that another entry still allows is refused."""
        return await self._change(pb.ChangeNetworkRequest(deny=hosts))

    async def set(self, network: NetworkInput) -> NetworkGrant:
        """Replace the whole grant: "none", "public", "packages", a list of hosts, or NetworkGrant."""
        return await self._change(pb.ChangeNetworkRequest(grant=write_network(network)))

    async def _change(self, request: pb.ChangeNetworkRequest) -> NetworkGrant:
        request.sandbox_id = self._sandbox_id
        changed = await self._connect().ask(lambda stubs: stubs.sandboxes.ChangeNetwork, request, self._timeout)
        return read_network(changed.grant)


@dataclass(frozen=True)
class SecretState:
    """A secret of a running sandbox; its value is never returned."""

    variable: str
    hosts: tuple[str, ...]
    name: str
    """The stored secret; empty for one whose value came with the sandbox."""


class SandboxSecretsAsync:
    """The secrets of a running sandbox: `box.secrets`. Variables and hosts stay as the sandbox was made with them."""

    def __init__(self, sandbox_id: str, connect: Callable[[], Connection], timeout: float) -> None:
        self._sandbox_id = sandbox_id
        self._connect = connect
        self._timeout = timeout

    async def list(self) -> builtins.list[SecretState]:
        """Return the secrets by variable."""
        request = pb.GetSandboxRequest(sandbox_id=self._sandbox_id)
        found = await self._connect().ask(lambda stubs: stubs.sandboxes.GetSandbox, request, self._timeout)
        secrets = sorted(found.sandbox.spec.secrets.items())
        return [SecretState(variable, tuple(one.hosts), one.name) for variable, one in secrets]

    async def set(self, variable: str, value: str) -> None:
        """Change the value that the next requests get; placeholder and hosts stay.

        A stored secret that is set again replaces it.

        Raises:
            SecretNotFound: The sandbox has no secret of that variable.
            InvalidArgument: The value cannot be part of a header.
        """
        check_secret_value(value, "value")
        await self._change(variable, value)

    async def remove(self, variable: str) -> None:
        """Take the value away: requests with the placeholder are refused from now on.

        Raises:
            SecretNotFound: The sandbox has no secret of that variable.
        """
        await self._change(variable, "")

    async def _change(self, variable: str, value: str) -> None:
        request = secret_pb2.ChangeSandboxSecretRequest(sandbox_id=self._sandbox_id, variable=variable, value=value)
        await self._connect().ask(lambda stubs: stubs.secrets.ChangeSandboxSecret, request, self._timeout)


def _read_traffic(message: pb.HostTraffic) -> HostTraffic:
    return HostTraffic(
        message.host,
        message.connections,
        message.open_connections,
        message.sent_bytes,
        message.received_bytes,
    )

"""Whether the network of a spec lets its secrets' hosts be reached."""

from __future__ import annotations

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.hosts import PACKAGES, WEB_PORTS, NamedHost, read_host
from sandmesh.shared.secret_rules import is_within


def check_secret_hosts(spec: pb.SandboxSpec) -> None:
    """Check that a spec's network allows the hosts of its secrets.

    Raises:
        InvalidArgument: It does not.
    """
    for variable, secret in sorted(spec.secrets.items()):
        for host in map(read_host, secret.hosts):
            if not _is_granted(host, spec.network):
                message = f"the secret {variable} is for {host}, which the network grant does not allow"
                fix = f'add it, as in network=["{host}"], or drop it from the hosts of the secret'
                raise InvalidArgument(f"{message}: {fix}", {"field": f"spec.secrets[{variable}].hosts"})


def _is_granted(host: NamedHost, grant: pb.NetworkGrant) -> bool:
    port = 443 if host.port is None else host.port
    if grant.mode == pb.NETWORK_MODE_PUBLIC and port in WEB_PORTS:
        return True
    granted = [read_host(one) for one in grant.hosts if one != PACKAGES]
    return any(one.allows(port) and is_within(host, one) for one in granted)

"""Changes of a grant: the grant that results, in its canonical form."""

from __future__ import annotations

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.hosts import PACKAGES, normal_host, read_host

_PUBLIC = "public"


def changed(current: pb.NetworkGrant, request: pb.ChangeNetworkRequest) -> pb.NetworkGrant:
    """Return the grant that a request makes of the one in force.

    Raises:
        InvalidArgument: The request contradicts itself, or a denied host stays allowed.
    """
    if request.HasField("grant"):
        if request.allow or request.deny:
            raise InvalidArgument("grant replaces the whole: use it without allow and deny", {"field": "grant"})
        return _canonical(request.grant.mode, set(request.grant.hosts), request.grant.only_public)
    is_public, hosts = current.mode == pb.NETWORK_MODE_PUBLIC, set(current.hosts)
    is_public = (is_public or _PUBLIC in request.allow) and _PUBLIC not in request.deny
    hosts |= {normal_host(host) for host in request.allow if host != _PUBLIC}
    denied = {normal_host(host) for host in request.deny if host != _PUBLIC}
    for host in sorted(denied):
        _check_denied(host, hosts - denied, is_public=is_public and host not in hosts)
    hosts -= denied
    mode = pb.NETWORK_MODE_PUBLIC if is_public else pb.NETWORK_MODE_HOSTS if hosts else pb.NETWORK_MODE_NONE
    return _canonical(mode, hosts, current.only_public)


def _canonical(mode: pb.NetworkMode.ValueType, hosts: set[str], only_public: bool) -> pb.NetworkGrant:
    return pb.NetworkGrant(mode=mode, hosts=sorted(map(normal_host, hosts)), only_public=only_public)


def _check_denied(host: str, kept: set[str], *, is_public: bool) -> None:
    if is_public:
        message = (
            f"{host} is among all public hosts, which the grant allows: deny 'public', and allow the others by name"
        )
        raise InvalidArgument(message, {"field": "deny"})
    if host == PACKAGES:
        return
    name = read_host(host).host
    wider = [host for host in sorted(kept - {PACKAGES}) if read_host(host).covers(name)]
    if wider:
        message = f"{host} stays allowed by {', '.join(wider)}: deny that too, and allow what is to remain"
        raise InvalidArgument(message, {"field": "deny"})

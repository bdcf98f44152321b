"""Grants: from what a creator or a template states to a policy, and to a text for people."""

from __future__ import annotations

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.shared.hosts import PACKAGES
from sandmeshd.drivers.egress.packages import package_hosts
from sandmeshd.drivers.egress.policy import Policy, read_hosts
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.templates import Template

MODES = (pb.NETWORK_MODE_NONE, pb.NETWORK_MODE_PUBLIC, pb.NETWORK_MODE_HOSTS)
"""What every driver with an egress grants."""

_ONLY_PUBLIC = (
    "The token that made the sandbox does not allow it; an administrator makes one that does: "
    "sandmesh token create NAME --private-network"
)
_WORDS = {"none": pb.NETWORK_MODE_NONE, "public": pb.NETWORK_MODE_PUBLIC}


def default_grant(template: Template) -> pb.NetworkGrant:
    """Return a template's default as a grant."""
    words = (template.network,) if isinstance(template.network, str) else template.network
    modes = [_WORDS[word] for word in words if word in _WORDS]
    hosts = [word for word in words if word not in _WORDS]
    return pb.NetworkGrant(mode=modes[0] if modes else pb.NETWORK_MODE_HOSTS, hosts=hosts)


def effective_grant(spec: pb.SandboxSpec, template: Template) -> pb.NetworkGrant:
    """Return the grant of a sandbox."""
    return spec.network if spec.network.mode else default_grant(template)


def is_open(grant: pb.NetworkGrant) -> bool:
    """Return whether a grant allows any host."""
    return grant.mode != pb.NETWORK_MODE_NONE


def names_packages(grant: pb.NetworkGrant) -> bool:
    """Return whether a grant has the preset."""
    return PACKAGES in grant.hosts


def policy_of(grant: pb.NetworkGrant, settings: EgressSettings) -> Policy:
    """Read a grant.

    Raises:
        InvalidArgument: One of its hosts is none.
    """
    hosts = read_hosts(host for host in grant.hosts if host != PACKAGES)
    indexes = package_hosts(settings.indexes) if names_packages(grant) else ()
    public = grant.mode == pb.NETWORK_MODE_PUBLIC
    if settings.private == "named" and grant.only_public:
        return Policy(public, hosts, private=False, indexes=indexes, advice=_ONLY_PUBLIC)
    return Policy(public, hosts, settings.private == "named", indexes)


def describe(grant: pb.NetworkGrant) -> str:
    """Describe a grant and what enforces it."""
    if not is_open(grant):
        return "none: own namespace"
    words = (["public"] if grant.mode == pb.NETWORK_MODE_PUBLIC else []) + list(grant.hosts)
    return f"{', '.join(words)}: own namespace, egress proxy"

"""Specs of sandboxes: validation, the canonical form, and a key that equal ones share."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.shared.hosts import normal_host
from sandmeshd.auth.principal import Principal, user_key

_LABEL_KEY, _LABEL_VALUE, _PORTS, _NAME, _HOSTS = 63, 255, 64, 255, 256
_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LISTING = frozenset({pb.NETWORK_MODE_HOSTS, pb.NETWORK_MODE_PUBLIC})


def new_sandbox_id() -> str:
    """Return a new id: "sb_" and 26 characters of 130 random bits."""
    return "sb_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26]


def check_spec(spec: pb.SandboxSpec) -> None:
    """Check what can be checked of a spec by itself.

    Raises:
        InvalidArgument: A field is out of range.
    """
    _check(bool(spec.template), "spec.template", "must be set")
    for key, value in spec.labels.items():
        _check(1 <= len(key) <= _LABEL_KEY, "spec.labels", f"keys must have 1 to {_LABEL_KEY} characters")
        _check(len(value) <= _LABEL_VALUE, "spec.labels", f"values must have at most {_LABEL_VALUE} characters")
    for name in spec.environment:
        _check(bool(name) and "=" not in name and "\0" not in name, "spec.environment", "has an invalid name")
    profile = spec.browser_profile
    rule = "must be 1 to 63 letters, digits, dots, hyphens and underscores, the first a letter or a digit"
    _check(not profile or _PROFILE.fullmatch(profile) is not None, "spec.browser_profile", rule)
    _check(spec.port_count <= _PORTS, "spec.port_count", f"must be at most {_PORTS}")
    check_network(spec.network)


def check_network(grant: pb.NetworkGrant, field: str = "spec.network.hosts") -> None:
    """Check what can be checked of a grant by itself.

    Raises:
        InvalidArgument: A host or the mode is not one, or they do not fit.
    """
    _check(grant.mode in pb.NetworkMode.values(), field.replace("hosts", "mode"), "must be a mode that there is")
    _check(len(grant.hosts) <= _HOSTS, field, f"must be at most {_HOSTS}")
    _check(bool(grant.hosts) or grant.mode != pb.NETWORK_MODE_HOSTS, field, "must be at least one with the mode HOSTS")
    _check(not grant.hosts or grant.mode in _LISTING, field, "must only be used with the modes HOSTS and PUBLIC")
    for host in grant.hosts:
        normal_host(host)


def limited_to(principal: Principal, spec: pb.SandboxSpec) -> pb.SandboxSpec:
    """Return the spec with its grant as far as the principal may make it: a token decides on private networks."""
    if not principal.only_public or not spec.network.hosts:
        return spec
    limited = pb.SandboxSpec()
    limited.CopyFrom(spec)
    limited.network.only_public = True
    return limited


def with_owner(spec: pb.SandboxSpec, user: str) -> pb.SandboxSpec:
    """Return the spec with whose its volumes are, whatever its maker says."""
    if not spec.volumes and not spec.volumes_owner:
        return spec
    owned = pb.SandboxSpec()
    owned.CopyFrom(spec)
    owned.volumes_owner = user_key(user) if spec.volumes else ""
    return owned


def check_name(value: str, field: str) -> None:
    """Check a name that becomes part of a key.

    Raises:
        InvalidArgument: It is empty or too long.
    """
    _check(1 <= len(value) <= _NAME, field, f"must have 1 to {_NAME} characters")


def _check(good: bool, field: str, rule: str) -> None:
    if not good:
        raise InvalidArgument(f"{field} {rule}", {"field": field})


def normalized(spec: pb.SandboxSpec, driver: str, network: pb.NetworkGrant | None = None) -> pb.SandboxSpec:
    """Return the canonical form of a spec, with its driver named.

    `network` is the default where the spec has none.
    """
    result = pb.SandboxSpec()
    result.CopyFrom(spec)
    result.driver = driver
    if result.limits == pb.Limits():
        result.ClearField("limits")
    if network is not None and not spec.network.mode:
        result.network.CopyFrom(network)
    hosts = sorted({normal_host(host) for host in result.network.hosts})
    del result.network.hosts[:]
    result.network.hosts.extend(hosts)
    if result.network == pb.NetworkGrant():
        result.ClearField("network")
    return result


def spec_key(spec: pb.SandboxSpec, template_generation: str) -> str:
    """Return the key of a normalized spec: without labels, but with the generation of its template."""
    bare = pb.SandboxSpec()
    bare.CopyFrom(spec)
    bare.ClearField("labels")
    digest = hashlib.sha256(f"{len(template_generation)}:{template_generation}".encode())
    digest.update(bare.SerializeToString(deterministic=True))
    return digest.hexdigest()[:32]

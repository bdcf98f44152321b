"""What a spec states, checked against what this driver can enforce."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.api import requirements as demands
from sandmeshd.drivers.api.templates import check_settings
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Wanted
from sandmeshd.drivers.egress import MODES
from sandmeshd.templates import Template

NAME = "bubblewrap"
MEMORY = "tmpfs"
"""How the disk's limit holds: the workspace of a sandbox that states one is a file system in memory of that size."""


def capabilities(groups: Mapping[str, str]) -> pb.Capabilities:
    """Give what can be enforced and done, where control groups enforce `groups`."""
    return pb.Capabilities(
        limits={"pids": "rlimit", "file": "rlimit", "disk": MEMORY, **groups},
        network_modes=MODES,
        snapshot=True,
        workspace_dir=True,
        isolation="namespaces",
    )


def enforced(limits: sandbox_pb2.Limits, groups: Mapping[str, str], host_uid: int) -> dict[str, str]:
    """Say which limits and boundaries hold in a sandbox, and how; "no" where one does not."""
    stated = demands.limit_values(limits)
    by = {name: how if stated[name] else "no" for name, how in capabilities(groups).limits.items()}
    pids = by["pids"] if stated["pids"] else "rlimit"
    held = {**dict.fromkeys(stated, "no"), **by, "pids": pids}
    return {**held, "network": "none: own namespace", "system calls": "seccomp", "host_uid": str(host_uid)}


def wanted(limits: sandbox_pb2.Limits) -> Wanted:
    """Give what control groups are to enforce."""
    return Wanted(limits.memory_bytes, limits.cpu_millis, limits.pids, limits.disk_bytes)


def able(template: Template) -> bool:
    """Say whether this driver can make a template's sandboxes at all."""
    return template.image_is_shipped and not template.runtime_config


def check_template(template: Template) -> None:
    """Check that this driver can make a template's sandboxes at all.

    Raises:
        CapabilityMissing: It is made of an image, or states what this driver does not know; the facts say what to do.
    """
    if not template.image_is_shipped:
        fix = (
            "name a shipped one (runtime-sandbox-base, runtime-sandbox-filesystem) or choose a driver that runs images"
        )
        message = f"the bubblewrap driver runs no images, and {template.image!r} of {template.name!r} is one: {fix}"
        raise CapabilityMissing(message, {"needs": "image", "fix": fix, "template": template.name})
    check_settings(template, NAME)


def check(request: pb.CreateSandboxRequest, groups: Mapping[str, str]) -> None:
    """Check that all that is stated can be enforced, where control groups enforce `groups`.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one, or memory is too small.
    """
    demands.check(request, NAME, capabilities(groups).limits, _most(), ["ports"] if request.ports else [])


def _most() -> dict[str, int]:
    """Give the most that can be promised of what the machine itself limits."""
    hard = {"pids": hard_limit(resource.RLIMIT_NPROC), "file": hard_limit(resource.RLIMIT_FSIZE)}
    return {"disk": demands.half_of_memory(), **{name: value for name, value in hard.items() if value is not None}}


def hard_limit(kind: int) -> int | None:
    """Give the most of a resource that this process and what it starts may have, None where there is no limit."""
    _, hard = resource.getrlimit(kind)
    return None if hard == resource.RLIM_INFINITY else hard

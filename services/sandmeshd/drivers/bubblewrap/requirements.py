"""What a spec requires, checked against what this driver can enforce."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.agent.userland.core.syscall_table import SUPPORTED
from sandmeshd.drivers.api import requirements
from sandmeshd.drivers.api.templates import check_settings, unknown_settings
from sandmeshd.drivers.bubblewrap.cgroups.cgroups import GroupLimits
from sandmeshd.drivers.egress import MODES
from sandmeshd.templates import Template

NAME = "bubblewrap"
START = "start"
"""The setting of a template by which its sandboxes share nothing that a zygote's forks have in common: "exec"."""
_KNOWN = {START: '"exec"'}
MEMORY = "tmpfs"
"""What enforces a limit of the disk: the workspace is then a file system in memory of that size."""


def capabilities(
    groups: Mapping[str, str], *, volumes: bool = True, images: bool = True, root: bool = True
) -> pb.Capabilities:
    """Return the driver's capabilities, where control groups enforce `groups`."""
    return pb.Capabilities(
        limits={"pids": "rlimit", "file": "rlimit", "disk": MEMORY, **groups},
        network_modes=MODES,
        pause=True,
        pause_files=True,
        snapshot=True,
        workspace_dir=True,
        volumes=volumes,
        isolation="namespaces",
        images=images,
        root=root,
        fork_kernels=SUPPORTED,
    )


def enforced(limits: sandbox_pb2.Limits, groups: Mapping[str, str], host_uid: int) -> dict[str, str]:
    """Return what enforces each limit and boundary of a sandbox; "no" if nothing does."""
    requested = requirements.limit_values(limits)
    by = {name: how if requested[name] else "no" for name, how in capabilities(groups).limits.items()}
    pids = by["pids"] if requested["pids"] else "rlimit"
    enforcers = {**dict.fromkeys(requested, "no"), **by, "pids": pids}
    return {**enforcers, "network": "none: own namespace", "system calls": "seccomp", "host_uid": str(host_uid)}


def group_limits(limits: sandbox_pb2.Limits) -> GroupLimits:
    """Return the limits that control groups enforce."""
    return GroupLimits(limits.memory_bytes, limits.cpu_millis, limits.pids, limits.disk_bytes)


def supports(template: Template) -> bool:
    """Return whether this driver can run a template's sandboxes at all."""
    return not unknown_settings(template, _KNOWN)


def starts_alone(template: Template) -> bool:
    """Return whether each of a template's sandboxes is to start with its own bwrap."""
    return START in template.runtime_config


def check_template(template: Template) -> None:
    """Check that this driver can make a template's sandboxes at all.

    Raises:
        CapabilityMissing: It has a setting that this driver does not support; the facts have the fix.
    """
    check_settings(template, NAME, _KNOWN)


def check(request: pb.CreateSandboxRequest, groups: Mapping[str, str]) -> None:
    """Check that all requirements can be enforced, where control groups enforce `groups`.

    Raises:
        CapabilityMissing: Some cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value is invalid, or memory is too small.
    """
    able = {**capabilities(groups).limits, **requirements.ROOTS}
    requirements.check(request, NAME, able, _maximums(), ["ports"] if request.ports else [])


def _maximums() -> dict[str, int]:
    """Return the highest limits that the machine itself allows."""
    hard = {"pids": hard_limit(resource.RLIMIT_NPROC), "file": hard_limit(resource.RLIMIT_FSIZE)}
    return {"disk": requirements.half_of_memory(), **{name: value for name, value in hard.items() if value is not None}}


def hard_limit(rlimit: int) -> int | None:
    """Return the hard limit of a resource for this process and its children, None if there is none."""
    _, hard = resource.getrlimit(rlimit)
    return None if hard == resource.RLIM_INFINITY else hard

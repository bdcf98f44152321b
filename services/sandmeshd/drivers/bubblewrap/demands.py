"""What a spec states, checked against what this driver can enforce."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, TemplateNotFound
from sandmeshd.drivers.bubblewrap.cgroups import Wanted
from sandmeshd.drivers.egress import MODES
from sandmeshd.templates import Template

MEMORY = "tmpfs"
"""How the disk's limit holds: the workspace of a sandbox that states one is a file system in memory of that size."""

SMALLEST_MEMORY = 32 << 20
"""Less does not hold a kernel of Python."""


def capabilities(groups: Mapping[str, str]) -> pb.Capabilities:
    """Give what can be enforced and done, where control groups enforce `groups`."""
    return pb.Capabilities(
        limits={"pids": "rlimit", "file": "rlimit", "disk": MEMORY, **groups},
        network_modes=MODES,
        isolation="namespaces",
    )


def enforced(limits: sandbox_pb2.Limits, groups: Mapping[str, str], host_uid: int) -> dict[str, str]:
    """Say which limits and boundaries hold in a sandbox, and how; "no" where one does not."""
    stated = _stated(limits)
    by = {name: how if stated[name] else "no" for name, how in capabilities(groups).limits.items()}
    pids = by["pids"] if stated["pids"] else "rlimit"
    held = {**dict.fromkeys(stated, "no"), **by, "pids": pids}
    return {**held, "network": "none: own namespace", "system calls": "seccomp", "host_uid": str(host_uid)}


def wanted(limits: sandbox_pb2.Limits) -> Wanted:
    """Give what control groups are to enforce."""
    return Wanted(limits.memory_bytes, limits.cpu_millis, limits.pids, limits.disk_bytes)


def in_memory(limits: sandbox_pb2.Limits) -> tuple[int, int]:
    """Give the size of the workspace, and of each of /tmp, /dev/shm and the home: 0 where the limits do not tell.

    All of them full leave a quarter of the memory to processes.
    """
    memory, disk = limits.memory_bytes, limits.disk_bytes
    return disk, memory // 4 - disk // 3 if memory else 0


def _stated(limits: sandbox_pb2.Limits) -> dict[str, int]:
    return {
        "memory": limits.memory_bytes,
        "cpu": limits.cpu_millis,
        "pids": limits.pids,
        "file": limits.file_bytes,
        "disk": limits.disk_bytes,
    }


def template_of(templates: Mapping[str, Template], name: str) -> Template:
    """Give a template by name.

    Raises:
        TemplateNotFound: There is none; `facts["known"]` lists those there are.
    """
    if name not in templates:
        known = ", ".join(templates)
        raise TemplateNotFound(f"there is no template {name!r}: choose one of {known}", {"known": known})
    return templates[name]


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
    if template.runtime_config:
        listed = ", ".join(template.runtime_config)
        what = f"runtime_config {listed} of {template.name!r}"
        message = f"the bubblewrap driver knows no {what}: state it as a limit, or drop it"
        raise CapabilityMissing(message, {"needs": listed, "template": template.name})


def check(request: pb.CreateSandboxRequest, groups: Mapping[str, str]) -> None:
    """Check that all that is stated can be enforced, where control groups enforce `groups`.

    Raises:
        CapabilityMissing: Something cannot; `facts["needs"]` names each.
        InvalidArgument: An environment variable's name or value cannot be one, or memory is too small.
    """
    needs = _unmet(request, groups)
    if needs:
        listed = ", ".join(needs)
        message = f"the bubblewrap driver cannot give or enforce: {listed}; drop it or choose another driver"
        raise CapabilityMissing(message, {"needs": listed})
    for name, value in request.spec.environment.items():
        if not name or "=" in name or "\0" in name + value:
            field = f"spec.environment[{name!r}]"
            raise InvalidArgument(f"{field} is no environment variable", {"field": field})

    if 0 < request.spec.limits.memory_bytes < SMALLEST_MEMORY:
        field = "spec.limits.memory_bytes"
        raise InvalidArgument(f"{field} is at least {SMALLEST_MEMORY}: Python needs that much", {"field": field})
    if 0 < request.spec.limits.memory_bytes < 2 * request.spec.limits.disk_bytes:
        field = "spec.limits.disk_bytes"
        why = "the workspace is in memory then, and processes need the rest"
        raise InvalidArgument(f"{field} is at most half of memory_bytes: {why}", {"field": field})


def _unmet(request: pb.CreateSandboxRequest, groups: Mapping[str, str]) -> list[str]:
    stated = _stated(request.spec.limits)
    able = capabilities(groups).limits
    needs = [name for name, value in stated.items() if value and name not in able]
    needs += [f"{name} (at most {most} here)" for name, most in _most().items() if stated[name] > most]
    if request.spec.port_count or request.ports:
        needs.append("ports")
    return needs


def _most() -> dict[str, int]:
    """Give the most that can be promised of what the machine itself limits."""
    half_of_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    hard = {"pids": hard_limit(resource.RLIMIT_NPROC), "file": hard_limit(resource.RLIMIT_FSIZE)}
    return {"disk": half_of_memory, **{name: value for name, value in hard.items() if value is not None}}


def hard_limit(kind: int) -> int | None:
    """Give the most of a resource that this process and what it starts may have, None where there is no limit."""
    _, hard = resource.getrlimit(kind)
    return None if hard == resource.RLIM_INFINITY else hard

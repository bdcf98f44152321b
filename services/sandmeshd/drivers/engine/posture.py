"""What a sandbox's container is: what the engine is asked to make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api.requirements import in_memory
from sandmeshd.drivers.engine.requirements import tasks
from sandmeshd.drivers.engine.runtimes import Kind
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_config import HOME, USER_ID, WORKSPACE
from sandmeshd.drivers.node.records import Folder

AGENT_DIRECTORY = "/run/sandmesh/agent"
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")

MESH, NODE, SANDBOX, OWNER, TEMPLATE, STATE = (
    f"dev.sandmesh.{name}" for name in ("mesh", "node", "sandbox", "owner", "template", "state")
)
"""The labels of a container; its volumes and its network have the first three, and the fourth where it has that."""

OWN_BYTES = 96 << 20
"""What agent and zygote may take beside the memory that user code was granted."""

HOSTS = "hosts"

LOG = {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}


def container_name(mesh_id: str, sandbox_id: str) -> str:
    """Give the name of a sandbox's container: the engine has each name once."""
    return f"sandmesh-{mesh_id}-{sandbox_id}"


def of_node(settings: DockerSettings) -> list[str]:
    """Give the labels of all that is a node's, as filters: an engine may serve several nodes of a mesh."""
    owner = [f"{OWNER}={settings.link.owner}"] if settings.link.owner else []
    return [f"{MESH}={settings.paths.mesh_id}", f"{NODE}={settings.node_id}", *owner]


def container_config(
    settings: DockerSettings,
    folder: Folder,
    spec: sandbox_pb2.SandboxSpec,
    image: str,
    trusts: bool,
    workspace: str = "",
) -> dict[str, Any]:
    """Give the body of a create; with `trusts` the node's certificates are shown inside.

    `workspace` is the directory of the host that is the workspace; empty: the sandbox has a volume of its own.
    """
    limits = _limits(settings.kind, spec.limits)
    return {
        "Image": image,
        "Hostname": "sandbox",
        # What begins as uid 0 leaves it before it reads anything, and keeps three capabilities.
        "User": "0:0",
        # A namespace with a loopback it has either way: without this the engine starts itself once more to look on.
        # gVisor's runtime leaves the loopback to the engine.
        "NetworkDisabled": not settings.kind.runtime,
        "Labels": {**_owner(settings, folder), TEMPLATE: spec.template, STATE: str(settings.paths.state)},
        "HostConfig": {
            **_walls(settings.kind),
            **limits,
            **_files(settings, folder, spec.limits, trusts, workspace),
        },
    }


def _owner(settings: DockerSettings, folder: Folder) -> dict[str, str]:
    owner = {OWNER: settings.link.owner} if settings.link.owner else {}
    return {MESH: settings.paths.mesh_id, NODE: settings.node_id, SANDBOX: folder.sandbox_id, **owner}


def _walls(kind: Kind) -> dict[str, Any]:
    return {
        "Runtime": kind.runtime,
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": ["KILL", "SETGID", "SETUID", "SETPCAP"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "RestartPolicy": {"Name": "no"},
        "LogConfig": LOG,
        # Shared memory that nobody is attached to goes, so that it cannot hold a sandbox's memory for ever.
        "Sysctls": {"kernel.shm_rmid_forced": "1"},
    }


def _limits(kind: Kind, limits: sandbox_pb2.Limits) -> dict[str, Any]:
    memory = limits.memory_bytes + OWN_BYTES if limits.memory_bytes else 0
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": limits.cpu_millis * 1_000_000,
        "PidsLimit": tasks(kind, limits),
    }


def _files(
    settings: DockerSettings, folder: Folder, limits: sandbox_pb2.Limits, trusts: bool, workspace: str
) -> dict[str, Any]:
    disk, scratch = in_memory(limits)
    size = min(scratch or settings.scratch_bytes, settings.scratch_bytes)
    owned = f"uid={USER_ID},gid={USER_ID},mode=0700"
    memory = {
        "/tmp": f"rw,exec,nosuid,nodev,size={size},mode=1777",  # noqa: S108 - inside
        HOME: f"rw,exec,nosuid,nodev,size={size},{owned}",
    }
    mounts = [_bound(str(folder.sockets), AGENT_DIRECTORY, read_only=False)]
    if not settings.kind.runtime:
        # What has no network of the engine's is given none of its names either.
        mounts.append(_bound(str(folder.sockets / HOSTS), "/etc/hosts", read_only=True))
    if workspace:
        mounts.append(_bound(workspace, WORKSPACE, read_only=False))
    elif disk:
        memory[WORKSPACE] = f"rw,exec,nosuid,nodev,size={disk},{owned}"
    else:
        # Without a name it goes with its container; by its labels it is found where an engine died in between.
        options = {"Labels": _owner(settings, folder)}
        mounts.append({"Type": "volume", "Target": WORKSPACE, "VolumeOptions": options})
    if trusts and BUNDLE.exists():
        mounts.append(_bound(str(BUNDLE.resolve()), str(BUNDLE), read_only=True))
    mounts += [_bound(str(real), place, read_only=True) for real, place in settings.shown]
    return {"Tmpfs": memory, "ShmSize": size, "Mounts": mounts}


def _bound(source: str, target: str, read_only: bool) -> dict[str, Any]:
    # What is mounted below the source would be writable under older engines: it is not shown.
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only, "BindOptions": options}

"""The configuration of a sandbox's container, as the engine's API takes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api.requirements import in_memory
from sandmeshd.drivers.engine.requirements import tasks
from sandmeshd.drivers.engine.runtimes import RuntimeProfile
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_config import HOME, USER_ID, WORKSPACE
from sandmeshd.drivers.node.records import Folder

AGENT_DIRECTORY = "/run/sandmesh/agent"
AGENT_ID = 900
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")

MESH, NODE, SANDBOX, OWNER, TEMPLATE, STATE = (
    f"dev.sandmesh.{name}" for name in ("mesh", "node", "sandbox", "owner", "template", "state")
)
"""The labels of a container; its volumes and network have the first three, and the fourth if the container has it."""

AGENT_BYTES = 96 << 20
"""The memory of agent and zygote, in addition to the limit of user code."""

HOSTS = "hosts"

LOG = {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}}


def container_name(mesh_id: str, sandbox_id: str) -> str:
    """Return the name of a sandbox's container, unique on its engine."""
    return f"sandmesh-{mesh_id}-{sandbox_id}"


def node_labels(settings: DockerSettings) -> list[str]:
    """Return the labels of everything of a node, as filters: an engine may serve several nodes of a mesh."""
    owner = [f"{OWNER}={settings.link.owner}"] if settings.link.owner else []
    return [f"{MESH}={settings.paths.mesh_id}", f"{NODE}={settings.node_id}", *owner]


def container_config(
    settings: DockerSettings,
    folder: Folder,
    spec: sandbox_pb2.SandboxSpec,
    image: str,
    trusts: bool,
    shared: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the configuration of a container; with `trusts` the node's CA certificates are mounted.

    `shared` are directories of the host that user code may write, by their places; without one for its workspace the
    sandbox has its own volume.
    """
    limits = _limits(settings, spec.limits)
    return {
        "Image": image,
        "Hostname": "sandbox",
        # The agent starts as uid 0, drops it before it reads anything, and keeps three capabilities.
        "User": "0:0",
        # A network namespace with a loopback exists either way; this saves a start of the engine's own helper.
        # gVisor's runtime leaves the loopback to the engine.
        "NetworkDisabled": not settings.profile.runtime,
        "Labels": {**_owner_labels(settings, folder), TEMPLATE: spec.template, STATE: str(settings.paths.state)},
        "HostConfig": {
            **_isolation(settings.profile),
            **limits,
            **_files(settings, folder, spec.limits, trusts, shared),
        },
    }


def _owner_labels(settings: DockerSettings, folder: Folder) -> dict[str, str]:
    owner = {OWNER: settings.link.owner} if settings.link.owner else {}
    return {MESH: settings.paths.mesh_id, NODE: settings.node_id, SANDBOX: folder.sandbox_id, **owner}


def _isolation(profile: RuntimeProfile) -> dict[str, Any]:
    return {
        "Runtime": profile.runtime,
        "NetworkMode": "none",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": ["KILL", "SETGID", "SETUID", "SETPCAP"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "RestartPolicy": {"Name": "no"},
        "LogConfig": LOG,
        # Shared memory without attachments is freed, so that it cannot hold a sandbox's memory forever.
        "Sysctls": {"kernel.shm_rmid_forced": "1"},
    }


def _limits(settings: DockerSettings, limits: sandbox_pb2.Limits) -> dict[str, Any]:
    # A workspace in memory must not take what processes need.
    unstated = settings.default_memory + limits.disk_bytes if settings.default_memory else 0
    user_code = limits.memory_bytes or unstated
    memory = user_code + AGENT_BYTES if user_code else 0
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": limits.cpu_millis * 1_000_000,
        "PidsLimit": tasks(settings.profile, limits),
    }


def _files(
    settings: DockerSettings, folder: Folder, limits: sandbox_pb2.Limits, trusts: bool, shared: Mapping[str, str]
) -> dict[str, Any]:
    disk, scratch = in_memory(limits)
    most = scratch or settings.default_memory // 4 or settings.scratch_bytes
    size = min(most, settings.scratch_bytes)
    owner = f"uid={USER_ID},gid={USER_ID},mode=0700"
    memory = {
        "/tmp": f"rw,exec,nosuid,nodev,size={size},mode=1777",  # noqa: S108 - inside
        # Installed packages are there: a disk that was asked for is for them, too.
        HOME: f"rw,exec,nosuid,nodev,size={max(size, disk)},{owner}",
    }
    mounts = [bind(str(folder.sockets), AGENT_DIRECTORY, read_only=False)]
    if not settings.profile.runtime:
        # The engine writes no hosts file for a container without a separate network.
        mounts.append(bind(str(folder.sockets / HOSTS), "/etc/hosts", read_only=True))
    if disk and WORKSPACE not in shared:
        memory[WORKSPACE] = f"rw,exec,nosuid,nodev,size={disk},{owner}"
    elif WORKSPACE not in shared:
        # Anonymous, it is removed with its container; its labels find it if the engine crashes in between.
        options = {"Labels": _owner_labels(settings, folder)}
        mounts.append({"Type": "volume", "Target": WORKSPACE, "VolumeOptions": options})
    if trusts and BUNDLE.exists():
        mounts.append(bind(str(BUNDLE.resolve()), str(BUNDLE), read_only=True))
    mounts += [bind(real, place, read_only=False) for place, real in shared.items()]
    mounts += [bind(str(real), place, read_only=True) for real, place in settings.host_mounts]
    return {"Tmpfs": memory, "ShmSize": size, "Mounts": mounts}


def scratch_directories(container: Mapping[str, Any], places: Iterable[str]) -> dict[str, str]:
    """Return the file systems in memory that a template adds to a container, each as large as its /tmp."""
    size = container["HostConfig"]["ShmSize"]
    options = f"rw,exec,nosuid,nodev,size={size},uid={USER_ID},gid={USER_ID},mode=0755"
    return dict.fromkeys(places, options)


def bind_data(mounts: Iterable[tuple[Path, str]]) -> list[dict[str, Any]]:
    """Return the mounts of the administrator's data."""
    return [bind(str(real), place, read_only=True) for real, place in mounts]


def bind(source: str, target: str, read_only: bool) -> dict[str, Any]:
    """Return the mount of a file or directory of the host."""
    # File systems mounted below the source would be writable under older engines: they are left out.
    options = {"Propagation": "rprivate", "NonRecursive": True}
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only, "BindOptions": options}

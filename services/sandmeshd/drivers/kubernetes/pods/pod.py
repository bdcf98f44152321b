"""The pod of a sandbox, as the API takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from google.protobuf.duration_pb2 import Duration

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.api.requirements import in_memory
from sandmeshd.drivers.kubernetes.names import metadata
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.node.agent_config import HOME, USER_ID, WORKSPACE, encode_config

AGENT_PORT = 8571
AGENT_DIRECTORY, BORN = "/run/sandmesh/agent", "/run/sandmesh-born"
AGENT_BYTES = 96 << 20
"""The memory of agent and zygote, in addition to the limit of user code."""

BIRTH_SECONDS = 600
"""How long an agent waits for its configuration in a pod of the driver's own."""

FILES = ("config", "user", "tls")
CONTAINER = "agent"

PostureName: TypeAlias = Literal["full", "baseline", "restricted"]

# The agent starts as uid 0, drops it before it reads anything, and keeps three capabilities: NET_ADMIN blocks user code
# from the network, and CHOWN makes its volumes user code's, before.
POSTURE: Mapping[str, Any] = {
    "runAsUser": 0,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"], "add": ["KILL", "SETGID", "SETUID", "SETPCAP", "NET_ADMIN", "CHOWN"]},
}
ORDINARY: Mapping[str, Any] = {
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Of a pod that is an ordinary user's in all."""

POSTURES: Mapping[PostureName, Mapping[str, Any]] = {
    "full": POSTURE,
    "baseline": {**POSTURE, "capabilities": {"drop": ["ALL"], "add": ["KILL", "SETGID", "SETUID", "SETPCAP", "CHOWN"]}},
    "restricted": ORDINARY,
}
"""The security contexts of sandboxes: in `full` the agent shuts user code out of the pod's network, else a
NetworkPolicy does; in `restricted` agent and user code have the same uid."""


def waiting_arguments(pin: str, seconds: int, *, shut: bool) -> list[str]:
    """Return the arguments of an agent that waits for the mesh with a certificate; with `shut` it shuts user code in.

    There is no secret in them.
    """
    birth = agent_pb2.Birth(certificate_sha256=pin, timeout=Duration(seconds=seconds))
    line = encode_config(agent_pb2.AgentConfig(listen=f"tcp://0.0.0.0:{AGENT_PORT}", birth=birth)).decode().strip()
    return ["--shut-in", f"{USER_ID},{AGENT_PORT}" if shut else str(USER_ID), "--waits", line]


def pod(
    settings: KubernetesSettings,
    sandbox_id: str,
    spec: sandbox_pb2.SandboxSpec,
    image: str,
    runtime_class: str,
    pin: str = "",
) -> dict[str, Any]:
    """Return the pod of a sandbox; its Secret has the same name.

    `pin` is the hash of the mesh's certificate, which an agent in the posture `restricted` waits for: a Secret could be
    read by user code there.
    """
    described = metadata(settings.paths.mesh_id, sandbox_id, spec.template)
    waiting = waiting_arguments(pin, BIRTH_SECONDS, shut=False) if settings.posture == "restricted" else []
    body: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "hostname": "sandbox",
        # Names are resolved only by the egress proxy.
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "securityContext": {
            "seccompProfile": {"type": "RuntimeDefault"},
            # Shared memory without attachments is freed, so that it cannot hold a sandbox's memory forever.
            "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
        },
        "containers": [_container(spec.limits, image, settings.posture, waiting)],
        "volumes": _volumes(settings, spec.limits, "" if waiting else str(described["name"])),
    }
    if "user-namespaces" in settings.declared:
        body["hostUsers"] = False
    if runtime_class:
        body["runtimeClassName"] = runtime_class
    if settings.node_selector:
        body["nodeSelector"] = settings.node_selector
    if settings.pull_secrets:
        body["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": described, "spec": body}


def _container(limits: sandbox_pb2.Limits, image: str, posture: PostureName, waiting: Sequence[str]) -> dict[str, Any]:
    shut_in = f"{USER_ID},{AGENT_PORT}" if posture == "full" else str(USER_ID)
    born = [] if waiting else [{"name": "born", "mountPath": BORN, "readOnly": True}]
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": waiting or ["--shut-in", shut_in, "--born", BORN],
        "workingDir": WORKSPACE,
        "ports": [{"containerPort": AGENT_PORT, "name": "agent"}],
        "resources": {"limits": _limits(limits)},
        "securityContext": POSTURES[posture],
        "volumeMounts": [
            *born,
            {"name": "agent", "mountPath": "/run/sandmesh"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - inside
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - inside
            {"name": "home", "mountPath": HOME},
            {"name": "workspace", "mountPath": WORKSPACE},
        ],
    }


def _limits(limits: sandbox_pb2.Limits) -> dict[str, str]:
    found: dict[str, str] = {}
    if limits.memory_bytes:
        found["memory"] = str(limits.memory_bytes + AGENT_BYTES)
    if limits.cpu_millis:
        found["cpu"] = f"{limits.cpu_millis}m"
    return found


def _volumes(settings: KubernetesSettings, limits: sandbox_pb2.Limits, secret: str) -> list[dict[str, Any]]:
    disk, scratch = in_memory(limits)
    if settings.workspace == "volume" and limits.memory_bytes:
        scratch = limits.memory_bytes // 4
    size = min(scratch or settings.scratch_bytes, settings.scratch_bytes)
    files = [{"key": name, "path": name} for name in FILES]
    born = {"name": "born", "secret": {"secretName": secret, "defaultMode": 0o400, "items": files}}
    return [
        *([born] if secret else []),
        {"name": "agent", "emptyDir": _memory(1 << 20)},
        *({"name": name, "emptyDir": _memory(size)} for name in ("tmp", "shm", "home")),
        {"name": "workspace", **_workspace(settings, disk)},
    ]


def _workspace(settings: KubernetesSettings, disk: int) -> dict[str, Any]:
    if settings.workspace == "volume":
        claim: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": str(disk or int(settings.volume_bytes))}},
        }
        if settings.storage_class:
            claim["storageClassName"] = settings.storage_class
        return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    # A size on a disk is not a limit but an eviction, minutes later: a workspace that is limited is in memory.
    if disk or settings.workspace == "memory":
        return {"emptyDir": _memory(disk or settings.scratch_bytes)}
    return {"emptyDir": {}}


def _memory(size: int) -> dict[str, Any]:
    return {"medium": "Memory", "sizeLimit": str(size)}

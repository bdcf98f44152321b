"""Settings of the kubernetes driver."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field

from sandmeshd.drivers.node.images.policy import ImageSandboxSettings


class KubernetesSettings(ImageSandboxSettings):
    """Settings of the kubernetes driver of one mesh."""

    kubeconfig: Path | None = Field(default=None, validation_alias="SANDMESH_KUBERNETES_KUBECONFIG")
    """The kubeconfig; by default the pod's own service account, or else KUBECONFIG, or ~/.kube/config."""

    context: str = Field(default="", validation_alias="SANDMESH_KUBERNETES_CONTEXT")
    """The context of the kubeconfig; by default its current one."""

    kubernetes_namespace: str = Field(default="", validation_alias="SANDMESH_KUBERNETES_NAMESPACE")
    """The namespace of the sandboxes, which must exist; by default the context's, or that of the driver's pod."""

    runtime_class: str = Field(default="", validation_alias="SANDMESH_KUBERNETES_RUNTIME_CLASS")
    """The RuntimeClass of sandboxes whose template names none; by default the cluster's own runtime."""

    posture: Literal["full", "baseline", "restricted"] = Field(
        default="full", validation_alias="SANDMESH_KUBERNETES_POSTURE"
    )
    """What a sandbox's pod may: "full" has NET_ADMIN, to shut user code out of the pod's network; "baseline" and
    "restricted" are what Pod Security admits by these names, and need a NetworkPolicy that is enforced."""

    declared: tuple[Literal["network-policy", "single-process-oom", "user-namespaces"], ...] = Field(
        default=(), validation_alias="SANDMESH_KUBERNETES_DECLARED"
    )
    """What the cluster can, as ["user-namespaces"]: a pod tries it at the driver's start, which fails where it shows
    the contrary. Of "network-policy", "single-process-oom" and "user-namespaces"."""

    reach: Literal["", "pods", "port-forward"] = Field(default="", validation_alias="SANDMESH_KUBERNETES_REACH")
    """How agents are reached: at their "pods" addresses, the default in the cluster, or by the API server's
    "port-forward", the default elsewhere. Gateways are on the driver's machine then."""

    workspace: Literal["disk", "memory", "volume"] = Field(
        default="disk", validation_alias="SANDMESH_KUBERNETES_WORKSPACE"
    )
    """Where workspaces are: on the machine's "disk", where only a workspace in memory can be limited, in "memory", or
    each on its own "volume", which goes with the pod (from Kubernetes 1.23 on)."""

    storage_class: str = Field(default="", validation_alias="SANDMESH_KUBERNETES_STORAGE_CLASS")
    """The StorageClass of such volumes; by default the cluster's own."""

    volume_bytes: ByteSize = Field(default=ByteSize(10 << 30), gt=0, validation_alias="SANDMESH_KUBERNETES_VOLUME_SIZE")
    """The size of the volume of a sandbox that states no limit of its disk, as 10GiB."""

    warm_pools: dict[str, str] = Field(default_factory=dict, validation_alias="SANDMESH_KUBERNETES_WARM_POOLS")
    """The SandboxWarmPool of agent-sandbox for each template, as {"base": "python"}: sandboxes are claims on them."""

    birth_identity: Path | None = Field(default=None, validation_alias="SANDMESH_KUBERNETES_BIRTH_IDENTITY")
    """The file with the mesh's certificate and private key, by which agents in warm pools know the mesh, as PEM."""

    node_selector: dict[str, str] = Field(default_factory=dict, validation_alias="SANDMESH_KUBERNETES_NODE_SELECTOR")
    """The labels that a sandbox's machine must have, as {"pool": "sandboxes"}."""

    pull_secrets: tuple[str, ...] = Field(default=(), validation_alias="SANDMESH_KUBERNETES_PULL_SECRETS")
    """The names of Secrets in the namespace that images are pulled with, as ["registry"]."""

    registry: str = Field(default="", validation_alias="SANDMESH_REGISTRY")
    """The registry that images are pulled from."""

    namespace: str = Field(default="sandmesh", validation_alias="SANDMESH_IMAGE_NAMESPACE")
    """The namespace of images: what precedes their names."""

    tag: str = Field(default="latest", validation_alias="SANDMESH_IMAGE_TAG")
    """The tag of images."""

    start_timeout: float = Field(default=600.0, gt=0, validation_alias="SANDMESH_KUBERNETES_START_TIMEOUT")
    """Seconds that a sandbox may take to start, with a new machine and the pull of its image in it."""

    schedule_timeout: float = Field(default=300.0, gt=0, validation_alias="SANDMESH_KUBERNETES_SCHEDULE_TIMEOUT")
    """Seconds of those that its pod may wait for a machine that has room."""

    scratch_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """The size of each of a sandbox's file systems in memory: /tmp, /dev/shm and its home."""

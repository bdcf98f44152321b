"""What the kubernetes driver does otherwise for sandboxes whose image has no agent of sandmesh."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.kubernetes.mesh_identity import MeshIdentity, passing_identity
from sandmeshd.drivers.kubernetes.requirements import NAME
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.drivers.kubernetes.unmodified.images import ClusterImage, ClusterImages
from sandmeshd.drivers.kubernetes.unmodified.pods import TRUSTED, with_image
from sandmeshd.drivers.node.agent_config import let_out
from sandmeshd.drivers.node.images.containers import describe_root
from sandmeshd.drivers.node.images.policy import check_images_allowed, check_root_allowed
from sandmeshd.drivers.node.images.process import KERNELS, check_name, configure, describe_kernels
from sandmeshd.drivers.node.portable_python.contents import AUTHORITIES
from sandmeshd.templates import Template


class UnmodifiedPods:
    """Plans such sandboxes of one driver."""

    def __init__(self, settings: KubernetesSettings, templates: Container[str]) -> None:
        """`templates` are the names that no image is known by."""
        self._settings = settings
        self._templates = templates
        self._images = ClusterImages(settings)

    @cached_property
    def identity(self) -> MeshIdentity:
        """What their agents wait for: root inside could read whatever its pod has."""
        return passing_identity()

    @property
    def able(self) -> bool:
        """Whether sandboxes can have images here."""
        return not self._lacking() and self._settings.image_sandboxes == "any"

    @property
    def root_able(self) -> bool:
        """Whether sandboxes can have root inside."""
        return self.able and self._settings.root_sandboxes == "allowed"

    def _lacking(self) -> str:
        if self._settings.warm_pools:
            return "images (those of agent-sandbox's pools are their SandboxTemplates')"
        if self._settings.posture == "restricted":
            return "images (the agent needs a separate uid: SANDMESH_KUBERNETES_POSTURE=baseline or full)"
        return ""

    def check(self, spec: sandbox_pb2.SandboxSpec) -> None:
        """Check what is required beside an image.

        Raises:
            CapabilityMissing: Something cannot be enforced; `facts["needs"]` names each.
            PermissionDenied: A setting forbids sandboxes with images.
            InvalidArgument: The image is named like a template.
        """
        if spec.root and not spec.image:
            fix = "name an image, as image='debian:12'"
            message = f"the {NAME} driver has root inside only in an image, since other roots are read-only: {fix}"
            raise CapabilityMissing(message, {"needs": "root", "fix": fix})
        if not spec.image:
            return
        check_images_allowed(self._settings)
        unmet = [self._lacking()] if self._lacking() else []
        unmet += ["limits.disk (a cluster limits no root)"] if spec.limits.disk_bytes else []
        if unmet:
            fix = "drop it, or choose the bubblewrap driver"
            message = f"the {NAME} driver cannot give or enforce with an image: {', '.join(unmet)}; {fix}"
            raise CapabilityMissing(message, {"needs": ", ".join(unmet), "fix": fix})
        check_name(spec, self._templates)

    async def find(self, spec: sandbox_pb2.SandboxSpec, template: Template) -> ClusterImage:
        """Return a sandbox's image.

        Raises:
            PermissionDenied: A setting forbids it, or root inside.
            CapabilityMissing, InvalidArgument, RuntimeUnavailable: As `ClusterImages.find`.
        """
        image = await self._images.find(spec.image)
        check_root_allowed(self._settings, image.config.user, _root_of(spec, template))
        return image

    def configure(
        self, config: agent_pb2.AgentConfig, image: ClusterImage, template: Template, sandbox: pb.RuntimeSandbox
    ) -> None:
        """Set what a sandbox's agent and its record have of the image."""
        configure(config, image.config, template, sandbox.spec)
        let_out(sandbox, config, template, self._settings.egress)
        _trust(config, sandbox.spec.environment)
        # Who it is, the agent finds out in the image.
        config.user_id = 0
        root = _root_of(sandbox.spec, template)
        mapped = "user-namespaces" in self._settings.declared
        ids = "uid 0 of the pod's user namespace" if mapped else "uid 0 of the node"
        sandbox.enforced.update(describe_root(image.pinned, image.config, root, "the node's layer", ids))
        sandbox.enforced[KERNELS] = f"the image's own Python where it has IPython, else {describe_kernels()}"

    def pod(
        self, body: Mapping[str, Any], image: ClusterImage, template: Template, spec: sandbox_pb2.SandboxSpec
    ) -> Any:
        """Return the pod of a sandbox, made of that of one whose image has the agent."""
        root = _root_of(spec, template)
        return with_image(body, image.pinned, image.config, root, self._settings.posture, spec.limits.pids)


def _trust(config: agent_pb2.AgentConfig, explicit: Mapping[str, str]) -> None:
    """Point user code to the certificates of the agent's image, where it is pointed to some that its own may lack."""
    for name, value in list(config.environment.items()):
        if value == AUTHORITIES and name not in explicit:
            config.environment[name] = f"{TRUSTED}/{Path(AUTHORITIES).name}"


def _root_of(spec: sandbox_pb2.SandboxSpec, template: Template) -> bool | None:
    return spec.root if spec.HasField("root") else template.root

"""What the drivers over an engine do otherwise for sandboxes whose image has no agent of sandmesh."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing
from sandmeshd.drivers.engine.container_config import AGENT_DIRECTORY, container_config, scratch_directories
from sandmeshd.drivers.engine.engine import Engine
from sandmeshd.drivers.engine.plan import Plan, agent_config, new_record, plan_of
from sandmeshd.drivers.engine.runtimes import DOCKER
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.engine.unmodified.container import show, trusted_bundle, with_image
from sandmeshd.drivers.engine.unmodified.images import EngineImage, EngineImages
from sandmeshd.drivers.engine.unmodified.programs import AgentPrograms
from sandmeshd.drivers.node.images.containers import describe_root
from sandmeshd.drivers.node.images.policy import check_images_allowed, check_root_allowed
from sandmeshd.drivers.node.mounts.user_view import template_mounts
from sandmeshd.drivers.node.records import Folder
from sandmeshd.templates import Template

_UNMET = ("workspace_dir", "volumes", "snapshot_id")


class UnmodifiedSandboxes:
    """Plans such sandboxes of one driver."""

    def __init__(self, settings: DockerSettings, engine: Engine, user_filter: bytes) -> None:
        self._settings = settings
        self._images = EngineImages(settings, engine)
        self._programs = AgentPrograms(settings)
        self._user_filter = user_filter

    @property
    def able(self) -> bool:
        """Whether sandboxes can have images here."""
        return not self._settings.link.remote and self._settings.image_sandboxes != "never"

    @property
    def root_able(self) -> bool:
        """Whether sandboxes can have root inside."""
        return self.able and self._settings.root_sandboxes == "allowed"

    def check(self, spec: sandbox_pb2.SandboxSpec) -> None:
        """Check what is required beside an image.

        Raises:
            CapabilityMissing: Something cannot be enforced; `facts["needs"]` names each.
            PermissionDenied: A setting forbids sandboxes with images.
        """
        driver = self._settings.profile.name
        if spec.root and not spec.image:
            fix = "name an image, as image='debian:12'"
            message = f"the {driver} driver has root inside only in an image, since other roots are read-only: {fix}"
            raise CapabilityMissing(message, {"needs": "root", "fix": fix})
        if not spec.image:
            return
        check_images_allowed(self._settings)
        unmet = [name for name in _UNMET if getattr(spec, name)]
        unmet += ["limits.disk (engines limit no root)"] if spec.limits.disk_bytes else []
        unmet += ["images (the engine does not see this machine's files)"] if self._settings.link.remote else []
        if unmet:
            fix = "drop it, or choose the bubblewrap driver"
            message = f"the {driver} driver cannot give or enforce with an image: {', '.join(unmet)}; {fix}"
            raise CapabilityMissing(message, {"needs": ", ".join(unmet), "fix": fix})

    async def plan(
        self, folder: Folder, request: pb.CreateSandboxRequest, template: Template, enforceable: Mapping[str, str]
    ) -> Plan:
        """Return the plan of a sandbox.

        Raises:
            PermissionDenied: A setting forbids the image, or root inside.
            CapabilityMissing, InvalidArgument, RuntimeUnavailable: As `EngineImages.find` and `AgentPrograms.binds`.
        """
        settings, spec = self._settings, request.spec
        image, binds = await asyncio.gather(self._images.find(spec.image), self._programs.binds(template.python))
        root = spec.root if spec.HasField("root") else template.root
        check_root_allowed(settings, image.config.user, root)
        record = new_record(settings, request, folder, enforceable)
        config = agent_config(record, template, self._user_filter, settings, image.config)
        record.sandbox.enforced.update(self._describe(image, root))
        container = container_config(settings, folder, spec, image.digest, trusts=False)
        container["HostConfig"]["Tmpfs"] |= scratch_directories(container, template.scratch)
        container = with_image(container, settings, image, config, root)
        plan = plan_of(settings, folder, record, config, container)
        plan = replace(plan, shared=folder.sockets / "inside")
        data = [(str(real), place, False) for real, place in template_mounts(template, settings.paths)]
        own = [*binds, *data, *trusted_bundle(config, spec.environment), (str(plan.shared), AGENT_DIRECTORY, True)]
        show(container, own)
        return plan

    def _describe(self, image: EngineImage, root: bool | None) -> dict[str, str]:
        """Return what is known of a sandbox's root, for people."""
        on_docker = self._settings.profile is DOCKER
        ids = "uid 0 of the engine's machine unless the engine maps it" if on_docker else "uid 0 of gVisor's kernel"
        named = f"{image.reference} ({image.digest})"
        return describe_root(named, image.config, root, "the engine's layer", ids)

    async def close(self) -> None:
        """End the pulls and builds that run."""
        await self._images.close()
        await self._programs.close()

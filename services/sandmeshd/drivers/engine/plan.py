"""The plan of a sandbox: its record, its agent's configuration and its container, made before anything is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import WrongState
from sandmeshd.drivers.api.templates import check_no_data
from sandmeshd.drivers.engine.container_config import (
    AGENT_DIRECTORY,
    bind_data,
    container_config,
    container_name,
    scratch_directories,
)
from sandmeshd.drivers.engine.images.images import Images
from sandmeshd.drivers.engine.reach.network import configure_listener, with_network
from sandmeshd.drivers.engine.requirements import enforced
from sandmeshd.drivers.engine.runtimes import DOCKER
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.images.process import configure
from sandmeshd.drivers.node.mounts.training_data import data_mounts
from sandmeshd.drivers.node.mounts.user_view import image_mounts
from sandmeshd.drivers.node.records import Folder, SpecRecord
from sandmeshd.images.image import ImageConfig
from sandmeshd.templates import Template


def new_record(
    settings: DockerSettings, request: pb.CreateSandboxRequest, folder: Folder, enforceable: Mapping[str, str]
) -> SpecRecord:
    """Return the record of a sandbox to be started."""
    limits = enforced(settings, request.spec.limits, enforceable)
    # An endpoint on a network is known only once the container runs.
    return SpecRecord(shared.new_sandbox(request, folder.endpoint, limits), request.fencing_token)


def agent_config(
    record: SpecRecord,
    template: Template,
    user_filter: bytes,
    settings: DockerSettings,
    image: ImageConfig | None = None,
) -> agent_pb2.AgentConfig:
    """Return the configuration of a sandbox's agent; what enforces its network grant is added to the record.

    `image` is what an image that has no agent says: who user code is then, the agent finds out in it.
    """
    config = shared.agent_config(record.sandbox, AGENT_DIRECTORY, template)
    config.fencing_token = record.fencing_token
    config.seccomp_filter = user_filter
    config.ends_with_driver = settings.ends_with_driver and not settings.link.remote
    if image is None:
        config.user_id = shared.USER_ID
    else:
        configure(config, image, template, record.sandbox.spec)
    if "memory" in settings.profile.by_engine and not config.memory_bytes:
        # So that calls that are ended for it say so. Beyond gVisor's its kernel ends, and with it the agent.
        config.memory_bytes = settings.default_memory
    if "pids" in settings.profile.built_in:
        config.max_processes = record.sandbox.spec.limits.pids or shared.PROCESSES
    shared.let_out(record.sandbox, config, template, settings.egress)
    return config


@dataclass(frozen=True)
class Plan:
    """One sandbox to be started."""

    folder: Folder
    record: SpecRecord
    config: agent_pb2.AgentConfig
    container: dict[str, Any]
    name: str
    """The container's."""
    own_boot_id: bool = False
    """Whether programs in it are shown another boot_id than the machine's."""
    port: int = 0
    """The port of the engine's machine that was leased for it."""
    shared: Path = Path()
    """The directory of this machine that agent and driver share, where the engine sees its files."""


def plan_of(
    settings: DockerSettings,
    folder: Folder,
    record: SpecRecord,
    config: agent_pb2.AgentConfig,
    container: dict[str, Any],
) -> Plan:
    """Return the plan of a container."""
    name = container_name(settings.paths.mesh_id, folder.sandbox_id)
    return Plan(folder, record, config, container, name, shared=folder.sockets)


class Planner:
    """Checks requests and makes plans of them."""

    def __init__(self, settings: DockerSettings, images: Images, user_filter: bytes) -> None:
        self._settings = settings
        self._images = images
        self._user_filter = user_filter

    async def check_prepared(self, template: Template) -> None:
        """Check that sandboxes of a template can be created without a build.

        Raises:
            CapabilityMissing: The template has a setting that this driver does not support, or the node lacks the
                administrator's data for it.
            WrongState: Its image is not prepared.
        """
        self._images.check(template)
        if self._settings.link.remote:
            check_no_data(template, self._settings.profile.name)
        data_mounts(template, self._settings.paths)
        if not await self._images.is_prepared(template):
            fix = f"prepare it first ({self._images.how_to_prepare(template)})"
            message = f"template {template.name} is not prepared: {fix}"
            raise WrongState(message, {"state": "not prepared", "template": template.name, "fix": fix})

    def plan(
        self,
        folder: Folder,
        request: pb.CreateSandboxRequest,
        enforceable: Mapping[str, str],
        shared: Mapping[str, str],
    ) -> Plan:
        """Return the plan of a sandbox; `shared` are the directories of the host that it may write, by their places."""
        settings = self._settings
        template = self._images.template(request.spec.template)
        record = new_record(settings, request, folder, enforceable)
        config = agent_config(record, template, self._user_filter, settings)
        image = self._images.name_of(template)
        container = container_config(settings, folder, request.spec, image, bool(config.egress_port), shared)
        if not settings.link.remote:
            container["HostConfig"]["Mounts"] += bind_data(image_mounts(template, settings.paths))
        container["HostConfig"]["Tmpfs"] |= scratch_directories(container, template.scratch)
        plan = replace(plan_of(settings, folder, record, config, container), port=sum(request.ports))
        if not settings.link.remote:
            return replace(plan, own_boot_id=bool(template.user) and os.geteuid() == 0 and settings.profile is DOCKER)
        configure_listener(config, record.sandbox)
        return replace(plan, container=with_network(container, settings.link, plan.name, plan.port))

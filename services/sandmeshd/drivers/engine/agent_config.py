"""The configuration of a container's agent, and the record of its sandbox."""

from __future__ import annotations

from collections.abc import Mapping

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.engine.container_config import AGENT_DIRECTORY
from sandmeshd.drivers.engine.requirements import enforced
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.records import Folder, Record
from sandmeshd.templates import Template


def new_record(
    settings: DockerSettings, request: pb.CreateSandboxRequest, folder: Folder, enforceable: Mapping[str, str]
) -> Record:
    """Return the record of a sandbox to be started."""
    limits = enforced(settings, request.spec.limits, enforceable)
    # An endpoint on a network is known only once the container runs.
    return Record(shared.new_sandbox(request, folder.endpoint, limits), request.fencing_token)


def agent_config(
    record: Record, template: Template, user_filter: bytes, settings: DockerSettings
) -> agent_pb2.AgentConfig:
    """Return the configuration of a sandbox's agent; what enforces its network grant is added to the record."""
    config = shared.agent_config(record.sandbox, AGENT_DIRECTORY, template)
    config.fencing_token = record.fencing_token
    config.seccomp_filter = user_filter
    config.ends_with_driver = settings.ends_with_driver and not settings.link.remote
    config.user_id = shared.USER_ID
    if "memory" in settings.profile.by_engine and not config.memory_bytes:
        # So that calls that are ended for it say so. Beyond gVisor's its kernel ends, and with it the agent.
        config.memory_bytes = settings.default_memory
    if "pids" in settings.profile.built_in:
        config.max_processes = record.sandbox.spec.limits.pids or shared.PROCESSES
    shared.let_out(record.sandbox, config, template, settings.egress)
    return config

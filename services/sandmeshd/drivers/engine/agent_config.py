"""What the agent of a container is told at its birth, and the record of its sandbox."""

from __future__ import annotations

from collections.abc import Mapping

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.engine.posture import AGENT_DIRECTORY
from sandmeshd.drivers.engine.requirements import enforced
from sandmeshd.drivers.engine.runtimes import Kind
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node import agent_config as birth
from sandmeshd.drivers.node.records import Folder, Record
from sandmeshd.templates import Template


def new_record(kind: Kind, request: pb.CreateSandboxRequest, folder: Folder, able: Mapping[str, str]) -> Record:
    """Give the record of a sandbox that is to be started."""
    held = enforced(kind, request.spec.limits, able)
    # Where an agent is reached over a network is known once it runs.
    return Record(birth.new_sandbox(request, folder.endpoint, held), request.fencing_token)


def agent_config(
    record: Record, template: Template, user_filter: bytes, settings: DockerSettings
) -> agent_pb2.AgentConfig:
    """Give what the agent of a sandbox is told; the record is told what lets it out."""
    config = birth.agent_config(record.sandbox, AGENT_DIRECTORY, template)
    config.fencing_token = record.fencing_token
    config.seccomp_filter = user_filter
    config.ends_with_driver = settings.ends_with_driver and not settings.link.remote
    config.user_id = birth.USER_ID
    if "pids" in settings.kind.by_itself:
        config.max_processes = record.sandbox.spec.limits.pids or birth.PROCESSES
    birth.let_out(record.sandbox, config, template, settings.egress)
    return config

"""What an agent is told at its birth, here."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.bubblewrap.arguments import SOCKETS
from sandmeshd.drivers.bubblewrap.requirements import enforced, hard_limit
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node import agent_config as birth
from sandmeshd.drivers.node.records import Folder, Record
from sandmeshd.templates import Template


def new_record(
    request: pb.CreateSandboxRequest, folder: Folder, settings: BubblewrapSettings, groups: Mapping[str, str]
) -> Record:
    """Give the record of a sandbox that is to be started."""
    held = enforced(request.spec.limits, groups, settings.host_uid)
    return Record(birth.new_sandbox(request, folder.endpoint, held), request.fencing_token)


def agent_config(
    record: Record, template: Template, user_filter: bytes, settings: BubblewrapSettings
) -> agent_pb2.AgentConfig:
    """Give what the agent of a sandbox is told; the record is told what lets it out."""
    sandbox = record.sandbox
    config = birth.agent_config(sandbox, SOCKETS, template)
    config.fencing_token = record.fencing_token
    config.seccomp_filter = user_filter
    config.ends_with_driver = settings.ends_with_driver
    config.max_processes = sandbox.spec.limits.pids or _at_most_hard(resource.RLIMIT_NPROC, birth.PROCESSES)
    config.hidden_directory = SOCKETS
    birth.let_out(sandbox, config, template, settings.egress)
    return config


def _at_most_hard(kind: int, default: int) -> int:
    # Nobody may raise a limit above the one that the sandbox inherits.
    hard = hard_limit(kind)
    return default if hard is None else min(default, hard)

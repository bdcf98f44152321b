"""The configuration of a sandbox's agent, and the record of the sandbox."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.bubblewrap.arguments import SOCKETS
from sandmeshd.drivers.bubblewrap.images.plan import CHANGES
from sandmeshd.drivers.bubblewrap.images.source import directory_of, variables
from sandmeshd.drivers.bubblewrap.requirements import enforced, hard_limit
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.records import Folder, SpecRecord
from sandmeshd.images.image import ImageConfig
from sandmeshd.templates import Template


def new_record(
    request: pb.CreateSandboxRequest, folder: Folder, settings: BubblewrapSettings, groups: Mapping[str, str]
) -> SpecRecord:
    """Return the record of a sandbox to be started."""
    limits = enforced(request.spec.limits, groups, settings.host_uid)
    return SpecRecord(shared.new_sandbox(request, folder.endpoint, limits), request.fencing_token)


def agent_config(
    record: SpecRecord,
    template: Template,
    user_filter: bytes,
    settings: BubblewrapSettings,
    image: ImageConfig | None = None,
) -> agent_pb2.AgentConfig:
    """Return the configuration of a sandbox's agent; what enforces its network grant is added to the record.

    `image` is what the image that is its root says, if it has one.
    """
    sandbox = record.sandbox
    config = shared.agent_config(sandbox, SOCKETS, template)
    config.fencing_token = record.fencing_token
    config.seccomp_filter = user_filter
    config.ends_with_driver = settings.ends_with_driver
    config.max_processes = sandbox.spec.limits.pids or _at_most_hard(resource.RLIMIT_NPROC, shared.PROCESSES)
    config.hidden_directory = SOCKETS
    if image is not None:
        config.environment.clear()
        config.environment.update(variables(image, template, sandbox.spec))
        config.workspace, config.home, config.image_changes = directory_of(image), "", CHANGES
    shared.let_out(sandbox, config, template, settings.egress)
    return config


def _at_most_hard(rlimit: int, default: int) -> int:
    # A limit cannot be raised above the inherited hard limit.
    hard = hard_limit(rlimit)
    return default if hard is None else min(default, hard)

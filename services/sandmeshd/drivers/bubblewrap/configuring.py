"""What an agent is told at its birth."""

from __future__ import annotations

import resource
import secrets
from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.bubblewrap.arguments import AGENT, ENVIRONMENT, MCP, SOCKETS, WORKSPACE
from sandmeshd.drivers.bubblewrap.demands import enforced, hard_limit
from sandmeshd.drivers.bubblewrap.records import Folder, Record
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.system import HOME, USER
from sandmeshd.drivers.egress import EgressSettings, describe, effective_grant, egress_port, egress_variables
from sandmeshd.templates import OwnTool, Template

FINISHED_CALL_SECONDS = 600
PROCESSES = 512
"""The processes and threads of a sandbox that does not state how many."""

LAYER = f"{HOME}/.venv"
"""Where what pip and npm install goes, in place of the template's environment, which is read-only."""

PATH = f"{ENVIRONMENT}/bin:/usr/local/bin:/usr/bin:/bin"
BASIC = {
    "PATH": f"{LAYER}/bin:{PATH}",
    "VIRTUAL_ENV": LAYER,
    "NPM_CONFIG_PREFIX": LAYER,
    # A cache would take memory, and is gone with the sandbox.
    "PIP_NO_CACHE_DIR": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "HOME": HOME,
    "USER": USER,
    "LOGNAME": USER,
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
}


def new_record(
    request: pb.CreateSandboxRequest, folder: Folder, settings: BubblewrapSettings, groups: Mapping[str, str]
) -> Record:
    """Give the record of a sandbox that is to be started, with a token of its own for its agent."""
    now = Timestamp()
    now.GetCurrentTime()
    sandbox = pb.RuntimeSandbox(
        sandbox_id=request.sandbox_id,
        mesh_id=request.mesh_id,
        state=pb.RUNTIME_STATE_STARTING,
        endpoint=folder.endpoint,
        agent_token=secrets.token_urlsafe(32),
        record_labels=request.record_labels,
        spec=request.spec,
        create_time=now,
        enforced=enforced(request.spec.limits, groups, settings.host_uid),
    )
    return Record(sandbox, request.fencing_token)


def agent_config(
    record: Record, template: Template, user_filter: bytes, ends_with_driver: bool
) -> agent_pb2.AgentConfig:
    """Give what the agent of a sandbox is told."""
    sandbox = record.sandbox
    seconds = template.call_seconds
    return agent_pb2.AgentConfig(
        sandbox_id=sandbox.sandbox_id,
        agent_token=sandbox.agent_token,
        fencing_token=record.fencing_token,
        listen=f"unix://{SOCKETS}/agent.sock",
        python=f"{ENVIRONMENT}/bin/python",
        tool_groups=template.tool_groups,
        environment={**variables_of(template), **sandbox.spec.environment},
        workspace=WORKSPACE,
        seccomp_filter=user_filter,
        ends_with_driver=ends_with_driver,
        max_processes=sandbox.spec.limits.pids or _at_most_hard(resource.RLIMIT_NPROC, PROCESSES),
        max_file_bytes=sandbox.spec.limits.file_bytes,
        memory_bytes=sandbox.spec.limits.memory_bytes,
        finished_call_ttl=Duration(seconds=FINISHED_CALL_SECONDS),
        hidden_directory=SOCKETS,
        mcp_libraries=[AGENT, MCP],
        mcp_config=template.mcp_config.encode(),
        call_timeout=None if seconds is None else Duration(nanos=int(seconds % 1 * 1e9), seconds=int(seconds)),
        own_tools=[own_tool(tool) for tool in template.tools],
    )


def own_tool(tool: OwnTool) -> agent_pb2.OwnTool:
    """Give a template's own tool as agents take it."""
    schema = tool.input_schema.encode()
    return agent_pb2.OwnTool(name=tool.name, description=tool.description, input_schema_json=schema, source=tool.source)


def let_out(record: Record, config: agent_pb2.AgentConfig, template: Template, settings: EgressSettings) -> None:
    """Add to record and configuration what lets a sandbox out as far as its grant goes; what was stated stays."""
    grant = effective_grant(record.sandbox.spec, template)
    record.sandbox.enforced["network"] = describe(grant)
    config.egress_port = egress_port(grant)
    if record.sandbox.spec.environment.keys() & {"VIRTUAL_ENV", "PATH"} == {"VIRTUAL_ENV"}:
        config.environment["PATH"] = f"{config.environment['VIRTUAL_ENV']}/bin:{PATH}"
    for name, value in egress_variables(grant, settings).items():
        if name not in config.environment:
            config.environment[name] = value


def _at_most_hard(kind: int, default: int) -> int:
    # Nobody may raise a limit above the one that the sandbox inherits.
    hard = hard_limit(kind)
    return default if hard is None else min(default, hard)


def variables_of(template: Template) -> dict[str, str]:
    """Give the environment variables that user code of every sandbox of a template gets."""
    return {**BASIC, **template.python.variables, **template.variables}

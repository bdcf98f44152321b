"""What the agent of a container is told at its birth, and the record of its sandbox."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.bubblewrap.configuring import own_tool
from sandmeshd.drivers.bubblewrap.records import Folder, Record
from sandmeshd.drivers.docker.demands import enforced
from sandmeshd.drivers.docker.posture import AGENT_DIRECTORY, HOME, USER_ID, WORKSPACE
from sandmeshd.drivers.egress import EgressSettings, describe, effective_grant, egress_port, egress_variables
from sandmeshd.templates import Template

FINISHED_CALL_SECONDS = 600
ENVIRONMENT = "/opt/env"
LAYER = f"{HOME}/.venv"
"""Where what pip and npm install goes, in place of the image's environment, which is read-only."""

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
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
}


def new_record(request: pb.CreateSandboxRequest, folder: Folder, able: Mapping[str, str]) -> Record:
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
        enforced=enforced(request.spec.limits, able),
    )
    return Record(sandbox, request.fencing_token)


def agent_config(
    record: Record, template: Template, user_filter: bytes, egress: EgressSettings, ends_with_driver: bool
) -> agent_pb2.AgentConfig:
    """Give what the agent of a sandbox is told; the record is told what lets it out."""
    sandbox = record.sandbox
    grant, seconds = effective_grant(sandbox.spec, template), template.call_seconds
    sandbox.enforced["network"] = describe(grant)
    return agent_pb2.AgentConfig(
        sandbox_id=sandbox.sandbox_id,
        agent_token=sandbox.agent_token,
        fencing_token=record.fencing_token,
        listen=f"unix://{AGENT_DIRECTORY}/agent.sock",
        python=f"{ENVIRONMENT}/bin/python",
        tool_groups=template.tool_groups,
        environment={**_variables(template), **egress_variables(grant, egress), **_stated(sandbox)},
        workspace=WORKSPACE,
        seccomp_filter=user_filter,
        ends_with_driver=ends_with_driver,
        max_file_bytes=sandbox.spec.limits.file_bytes,
        memory_bytes=sandbox.spec.limits.memory_bytes,
        finished_call_ttl=Duration(seconds=FINISHED_CALL_SECONDS),
        call_timeout=None if seconds is None else Duration(nanos=int(seconds % 1 * 1e9), seconds=int(seconds)),
        own_tools=[own_tool(tool) for tool in template.tools],
        mcp_libraries=["/opt/sandmesh/site", "/opt/sandmesh/mcp"],
        mcp_config=template.mcp_config.encode(),
        egress_port=egress_port(grant),
        user_id=USER_ID,
    )


def _variables(template: Template) -> dict[str, str]:
    return {**BASIC, **template.python.variables, **template.variables}


def _stated(sandbox: pb.RuntimeSandbox) -> dict[str, str]:
    stated = dict(sandbox.spec.environment)
    if stated.keys() & {"VIRTUAL_ENV", "PATH"} == {"VIRTUAL_ENV"}:
        stated["PATH"] = f"{stated['VIRTUAL_ENV']}/bin:{PATH}"
    return stated

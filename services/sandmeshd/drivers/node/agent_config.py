"""What a sandbox is at its birth, under every driver: its record, and what its agent is told."""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.egress import EgressSettings, describe, effective_grant, egress_port, egress_variables
from sandmeshd.drivers.egress.devices.leases import GROUP
from sandmeshd.drivers.egress.secrets.termination import authority_of
from sandmeshd.drivers.egress.variables import PORT
from sandmeshd.templates import OwnTool, Template, TrainingEnvironment

FINISHED_CALL_SECONDS = 600
CONFIG_BYTES = 1 << 20
PROCESSES = 512
"""The processes and threads of a sandbox that does not state how many."""

USER, USER_ID = "sandbox", 1000
HOME, WORKSPACE = "/home/sandbox", "/workspace"
ENVIRONMENT, AGENT, MCP = "/opt/env", "/opt/sandmesh/site", "/opt/sandmesh/mcp"
"""Where a sandbox has its template's packages, the agent's code, and that of the MCP client process."""

CERTIFICATES = "/tmp/.sandmesh-certificates.pem"  # noqa: S108 - the sandbox's own, and in no snapshot
"""Where programs of a sandbox with secrets find what to trust."""

LAYER = f"{HOME}/.venv"
"""Where what pip and npm install goes, in place of the template's environment, which is read-only."""

USER_PROGRAMS = "/opt/user/bin"
"""Programs of templates that name their user."""

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
    # What git takes where nothing else says who commits; the name is the account's.
    "EMAIL": f"{USER}@localhost",
    # Its check for leaks traces the program, which no sandbox allows: what is built with AddressSanitizer would fail.
    "LSAN_OPTIONS": "detect_leaks=0",
}

NO_BROWSER_SANDBOX = "off: it takes namespaces, which the system call filter allows no user code"
"""Why Chromium's own sandbox is off within those of this project."""


def new_sandbox(request: pb.CreateSandboxRequest, endpoint: str, enforced: Mapping[str, str]) -> pb.RuntimeSandbox:
    """Return a sandbox that is to be started, with a new token for its agent."""
    now = Timestamp()
    now.GetCurrentTime()
    return pb.RuntimeSandbox(
        sandbox_id=request.sandbox_id,
        mesh_id=request.mesh_id,
        state=pb.RUNTIME_STATE_STARTING,
        endpoint=endpoint,
        agent_token=secrets.token_urlsafe(32),
        record_labels=request.record_labels,
        spec=request.spec,
        create_time=now,
        enforced=enforced,
    )


def agent_config(sandbox: pb.RuntimeSandbox, sockets: str, template: Template) -> agent_pb2.AgentConfig:
    """Return the configuration of an agent, which listens in the directory `sockets`, a path inside.

    What a browser inside cannot enforce by itself is added to the sandbox.
    """
    if "browser" in template.tool_groups:
        sandbox.enforced["browser's own sandbox"] = NO_BROWSER_SANDBOX
    seconds = template.call_seconds
    return agent_pb2.AgentConfig(
        sandbox_id=sandbox.sandbox_id,
        agent_token=sandbox.agent_token,
        listen=f"unix://{sockets}/agent.sock",
        python=f"{ENVIRONMENT}/bin/python",
        tool_groups=template.tool_groups,
        environment={**variables_of(template), **sandbox.spec.environment},
        workspace=WORKSPACE,
        home=HOME,
        max_file_bytes=sandbox.spec.limits.file_bytes,
        memory_bytes=sandbox.spec.limits.memory_bytes,
        finished_call_ttl=Duration(seconds=FINISHED_CALL_SECONDS),
        mcp_libraries=[AGENT, MCP],
        mcp_config=template.mcp_config.encode(),
        call_timeout=None if seconds is None else Duration(nanos=int(seconds % 1 * 1e9), seconds=int(seconds)),
        own_tools=[own_tool(tool) for tool in template.tools],
        environments={name: training_environment(one) for name, one in template.environments.items()},
    )


def encode_config(config: agent_pb2.AgentConfig) -> bytes:
    """Return the line that configures an agent.

    Raises:
        InvalidArgument: It is larger than 1 MiB.
    """
    line = b64encode(config.SerializeToString()) + b"\n"
    if len(line) > CONFIG_BYTES:
        raise InvalidArgument("the environment variables are larger than 1 MiB", {"field": "spec.environment"})
    return line


def own_tool(tool: OwnTool) -> agent_pb2.OwnTool:
    """Return a template's own tool as agents take it."""
    schema = tool.input_schema.encode()
    return agent_pb2.OwnTool(name=tool.name, description=tool.description, input_schema_json=schema, source=tool.source)


def training_environment(environment: TrainingEnvironment) -> agent_pb2.TrainingEnvironment:
    """Return a template's training environment as agents take it."""
    return agent_pb2.TrainingEnvironment(target=environment.target, source=environment.source)


def let_out(
    sandbox: pb.RuntimeSandbox, config: agent_pb2.AgentConfig, template: Template, settings: EgressSettings
) -> None:
    """Add to sandbox and configuration what lets it out as far as its grant goes; what was stated stays."""
    grant = effective_grant(sandbox.spec, template)
    sandbox.enforced["network"] = describe(grant)
    # A device is reached by the same way, whatever the grant.
    config.egress_port = PORT if GROUP in template.tool_groups else egress_port(grant)
    if sandbox.spec.environment.keys() & {"VIRTUAL_ENV", "PATH"} == {"VIRTUAL_ENV"}:
        config.environment["PATH"] = f"{config.environment['VIRTUAL_ENV']}/bin:{PATH}"
    if sandbox.spec.secrets:
        config.trusted_certificates = authority_of(sandbox, settings).certificate
        config.certificates_file = CERTIFICATES
    for name, value in egress_variables(grant, settings, config.certificates_file).items():
        if name not in config.environment:
            config.environment[name] = value


def variables_of(template: Template) -> dict[str, str]:
    """Return the environment variables of user code in every sandbox of a template."""
    return {**basic_variables(template), **template.variables}


def basic_variables(template: Template) -> dict[str, str]:
    """Return those that its user and its Python have."""
    own: dict[str, str] = {}
    if template.user:
        home = f"/home/{template.user}"
        own = {"HOME": home, "USER": template.user, "LOGNAME": template.user, "SHELL": "/bin/bash"}
        own["PATH"] = f"{USER_PROGRAMS}:{BASIC['PATH']}"
    return {**BASIC, **own, **template.python.variables}

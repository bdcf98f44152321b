"""The files that configure the agent of a container."""

from __future__ import annotations

import json
from base64 import b64encode

from sandmesh.api.agent.v1 import agent_pb2
from sandmeshd.drivers.node.agent_config import encode_config

CONFIG, USER, TLS = "config", "user", "tls"


def agent_files(config: agent_pb2.AgentConfig) -> dict[str, bytes]:
    """Return the configurations of agent and zygote, by the names of their files in the agent's directory.

    Raises:
        InvalidArgument: One is larger than 1 MiB.
    """
    return {CONFIG: encode_config(config), USER: _zygote_config(config)}


def _zygote_config(config: agent_pb2.AgentConfig) -> bytes:
    """Return the zygote's configuration, which it thus need not wait for the agent to send."""
    message = {"python": config.python, "environment": dict(config.environment), "hidden": "", "user": config.user_id}
    return json.dumps({**message, "seccomp": b64encode(config.seccomp_filter).decode()}).encode()

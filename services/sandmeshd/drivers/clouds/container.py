"""The container of an agent that waits for its birth, alike at every vendor: its port, command and health check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration

from sandmesh.api.agent.v1 import agent_pb2
from sandmeshd.drivers.node.agent_config import USER_ID, encode_config

PORT: Final = 8571
AGENT_DIRECTORY: Final = "/run/sandmesh/agent"
BIRTH_SECONDS: Final = 600
DISK_MEBIBYTES: Final = 512
HEALTH: Final[Mapping[str, Any]] = {
    "httpGetUrl": "/",
    "initialDelaySeconds": 0,
    "periodSeconds": 1,
    "timeoutSeconds": 1,
    "failureThreshold": 60,
    "successThreshold": 1,
}
"""The health check; an agent that waits answers it with nothing in it."""


def command(pin: str) -> list[str]:
    """Return the arguments of an image's entry point, for an agent that waits for the mesh with a certificate.

    There is no secret in them.
    """
    birth = agent_pb2.Birth(certificate_sha256=pin, timeout=Duration(seconds=BIRTH_SECONDS))
    line = encode_config(agent_pb2.AgentConfig(listen=f"tcp://0.0.0.0:{PORT}", birth=birth)).decode().strip()
    return ["--shut-in", f"{USER_ID},{PORT}", "--waits", line]

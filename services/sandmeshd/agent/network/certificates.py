"""The file of certificates that programs inside trust: the system's, and those of the sandbox's own authority."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sandmesh.api.agent.v1 import agent_pb2 as pb

SYSTEM: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
"""Where Debian, Fedora and Alpine have theirs."""


def write_bundle(config: pb.AgentConfig) -> None:
    """Write the file that the environment of user code names.

    Raises:
        OSError: It cannot be written.
    """
    system = next((path.read_bytes() for path in map(Path, SYSTEM) if path.exists()), b"")
    Path(config.certificates_file).write_bytes(system.rstrip() + b"\n" + config.trusted_certificates)

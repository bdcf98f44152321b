"""TLS for agents that are reached over a network: a certificate of the agent's own, which its peers know by hash."""

from __future__ import annotations

import ssl
from pathlib import Path


def load_identity(path: str) -> ssl.SSLContext:
    """Return the context of the agent's server, read from a file with certificate and key, which is removed.

    Raises:
        OSError: The file does not exist or is not valid (ssl.SSLError).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()
    return context

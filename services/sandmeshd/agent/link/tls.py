"""Who the agent is to those that reach it over a network: a certificate of its own, by whose hash they know it."""

from __future__ import annotations

import ssl
from pathlib import Path


def take_identity(path: str) -> ssl.SSLContext:
    """Give what the agent serves TLS with, read from a file with certificate and key, which is removed.

    Raises:
        OSError: The file is not there or holds none (ssl.SSLError).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()
    return context

"""TLS for agents that are reached over a network: a certificate of the agent's own, which its peers know by hash."""

from __future__ import annotations

import os
import ssl
from pathlib import Path


def load_pem(pem: bytes) -> ssl.SSLContext:
    """Return the context of the agent's server, read from the bytes of such a file.

    Raises:
        OSError: They are not valid (ssl.SSLError).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # ssl reads keys only from files; this one is in memory.
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


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

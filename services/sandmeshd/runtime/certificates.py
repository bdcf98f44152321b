"""Certificates for trials, each signed by a new authority whose key is not kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable

FILES = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}


def issue_certificate(names: Iterable[str], days: int) -> Mapping[str, bytes]:
    """Return a certificate for names and addresses in PEM: `cert` with its chain, its `key`, and the authority's `ca`.

    Raises:
        RuntimeUnavailable: The extra `tls` is not installed.
    """
    try:
        import trustme  # noqa: PLC0415 - only certificates for trials need the extra `tls`
    except ImportError:
        fix = "pip install 'sandmesh[tls]'"
        raise RuntimeUnavailable(f"the package trustme is not installed: {fix}", {"fix": fix}) from None
    authority = trustme.CA()
    issued = authority.issue_cert(*names, not_after=datetime.now(UTC) + timedelta(days=days))
    chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
    return {"ca": authority.cert_pem.bytes(), "cert": chain, "key": issued.private_key_pem.bytes()}


def write_certificate(issued: Mapping[str, bytes], paths: Mapping[str, Path]) -> None:
    """Write a certificate's files, which must not exist yet; only this user can read the key."""
    for kind, text in issued.items():
        mode = 0o600 if kind == "key" else 0o644
        descriptor = os.open(paths[kind], os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)

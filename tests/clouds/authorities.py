"""Lets a test trust the authority that signed a stand-in's certificate."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandmeshd.agentlink import addresses


@contextmanager
def trusted(folder: Path) -> Generator[None]:
    """Trust `folder`/authority.pem, and reach this machine without a proxy, until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(folder / "authority.pem"))
        # In another order than what sandboxes have, so that a leak of it is seen.
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        addresses.system_authorities.cache_clear()
        yield
    addresses.system_authorities.cache_clear()

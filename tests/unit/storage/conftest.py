"""Storages to test with: a directory of this machine, and a server that speaks S3."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandmeshd.storage import Snapshots, StorageSettings, open_storage
from tests.s3 import BUCKET, KEY

LIMIT = 16 << 20


@pytest.fixture(params=["local", "s3"])
async def snapshots(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Snapshots]:
    """A storage of each kind, empty."""
    if request.param == "local":
        settings = StorageSettings(service="local", folder=tmp_path / "kept", limit_bytes=LIMIT)
    else:
        settings = StorageSettings(
            service="s3",
            folder=Path("/") / tmp_path.name,
            bucket=BUCKET,
            endpoint=request.getfixturevalue("s3"),
            key_id=SecretStr(KEY),
            key_secret=SecretStr(KEY),
            limit_bytes=LIMIT,
        )
    async with open_storage(settings) as opened:
        yield opened

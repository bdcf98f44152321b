"""Storages to test with: a directory of this machine, a server that speaks S3, and one that speaks OSS."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pydantic import ByteSize, SecretStr

from sandmeshd.storage import StorageSettings, WorkspaceSnapshots, open_storage
from tests import oss
from tests.s3 import BUCKET, KEY

LIMIT = 16 << 20


@pytest.fixture(params=["local", "s3", "oss"])
async def snapshots(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[WorkspaceSnapshots]:
    """A storage of each kind, empty."""
    if request.param == "oss":
        async with oss.oss_server() as server, open_storage(oss_settings(server)) as opened:
            yield opened
        return
    if request.param == "local":
        settings = StorageSettings(service="local", folder=tmp_path / "kept", limit_bytes=ByteSize(LIMIT))
    else:
        settings = StorageSettings(
            service="s3",
            folder=Path("/") / tmp_path.name,
            bucket=BUCKET,
            endpoint=request.getfixturevalue("s3"),
            key_id=SecretStr(KEY),
            key_secret=SecretStr(KEY),
            limit_bytes=ByteSize(LIMIT),
        )
    async with open_storage(settings) as opened:
        yield opened


def oss_settings(server: oss.Oss, secret: str = oss.SECRET) -> StorageSettings:
    """Give the settings that mean a server's bucket."""
    return StorageSettings(
        service="oss",
        folder=Path("/pre/fix"),
        bucket=oss.BUCKET,
        endpoint=server.address,
        key_id=SecretStr(oss.KEY_ID),
        key_secret=SecretStr(secret),
        limit_bytes=ByteSize(LIMIT),
    )

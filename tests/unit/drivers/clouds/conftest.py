"""A driver on the stand-in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from sandmeshd.agentlink import addresses
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.drivers.node.removal import remove_tree
from sandmeshd.runtime.paths import MeshPaths
from tests.clouds.function_compute import KEYS, StandIn, stand_in
from tests.unit.agent.sandbox import Ground, prepare_ground

SECRET = "the secret of a mesh of the tests"  # noqa: S105 - of tests


@pytest.fixture(scope="session")
def ground() -> Ground:
    return asyncio.run(prepare_ground())


@pytest.fixture
async def cloud(ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StandIn]:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    addresses.system_authorities.cache_clear()
    async with stand_in(tmp_path, ground) as made:
        yield made
    addresses.system_authorities.cache_clear()


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[MeshPaths]:
    made = MeshPaths(f"clouds-{secrets.token_hex(5)}", tmp_path / "state", tmp_path / "runtime")
    made.make()
    yield made
    for folder in (made.state, made.runtime):
        remove_tree(folder)


@pytest.fixture
def settings(cloud: StandIn, paths: MeshPaths) -> FcSettings:
    [(key, secret)] = KEYS.items()
    return FcSettings(
        paths=paths,
        endpoint=cloud.endpoint,
        access_key_id=key,
        access_key_secret=SecretStr(secret),
        egress=EgressSettings(mesh_secret=SecretStr(SECRET)),
        start_timeout=60,
        lost_seconds=2,
    )

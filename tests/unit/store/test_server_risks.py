"""What the monitor of a store reports: settings that endanger what a mesh keeps, and allocators that fell silent."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.allocator.maintenance.store_monitor import StoreMonitor
from sandmeshd.store import StoreSettings, open_store
from sandmeshd.store.client import prefix_of
from tests.unit.store.servers import ExternalServer, external_server

SILENT_SECONDS = 12.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[ExternalServer]:
    """Run a server of an operator's own."""
    async with external_server(tmp_path) as running:
        yield running


async def configure(server: ExternalServer, **values: str) -> None:
    """Change settings of a server that runs."""
    async with cast("Any", Redis).from_url(server.unix_url) as client:
        for name, value in values.items():
            await client.config_set(name.replace("_", "-"), value)


def settings(server: ExternalServer) -> StoreSettings:
    return StoreSettings(mesh_id="m", url=SecretStr(server.unix_url))


async def test_a_store_that_evicts_records_is_refused_with_what_to_do(server: ExternalServer) -> None:
    await configure(server, maxmemory="100mb", maxmemory_policy="allkeys-lru")
    with pytest.raises(RuntimeUnavailable, match=r"evicts .* records of sandboxes in use.*maxmemory-policy noeviction"):
        async with open_store(settings(server)):
            pass


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"maxmemory": "100mb", "maxmemory_policy": "volatile-ttl"}, "remembered of deleted sandboxes"),
        ({"maxmemory": "0", "maxmemory_policy": "allkeys-lru"}, "if it had a limit of memory"),
        ({"appendonly": "no"}, "tokens, quotas, secrets and usage"),
    ],
)
async def test_a_store_that_may_lose_less_is_taken_and_reported(
    server: ExternalServer, values: dict[str, str], words: str
) -> None:
    await configure(server, appendonly="yes")
    await configure(server, **values)
    async with open_store(settings(server)) as store:
        monitor = StoreMonitor(store, SILENT_SECONDS)
        await monitor.read_risks()
        [trouble] = monitor.troubles()
        assert words in trouble.detail
        assert "CONFIG SET" in trouble.fix
        assert not trouble.blocks


async def test_a_store_that_persists_and_never_evicts_is_well(server: ExternalServer) -> None:
    await configure(server, appendonly="yes", maxmemory="100mb", maxmemory_policy="noeviction")
    async with open_store(settings(server)) as store:
        monitor = StoreMonitor(store, SILENT_SECONDS)
        await monitor.read_risks()
        assert not monitor.troubles()


async def test_an_allocator_that_hangs_is_named_and_one_that_was_killed_is_not(server: ExternalServer) -> None:
    await configure(server, appendonly="yes")
    ended = await asyncio.create_subprocess_exec("/bin/true")
    await ended.wait()
    host, now = socket.gethostname(), time.time() * 1e6
    silent = {
        f"{os.getpid()}@{host}": 40,
        f"{ended.pid}@{host}": 40,
        "7@other-host": 50,
        "8@other-host": 700,
        "9@other-host": 1,
    }
    async with open_store(settings(server)) as store, cast("Any", Redis).from_url(server.unix_url) as client:
        for name, seconds in silent.items():
            await client.zadd(f"{prefix_of('m')}:allocators", {f"{name}@{'a' * 16}": now - seconds * 1e6})
        monitor = StoreMonitor(store, SILENT_SECONDS)
        await monitor.probe()
        named = [trouble.detail.rpartition(" has not been heard of for")[0] for trouble in monitor.troubles()]
        assert named == ["process 7 on other-host", f"process {os.getpid()} on {host}"]
        assert all(trouble.part == "allocator" and "start it again" in trouble.fix for trouble in monitor.troubles())

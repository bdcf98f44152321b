"""The store by a URL, and what all stores have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import SecretStr, ValidationError
from redis.asyncio import Redis

from sandmesh.errors import StoreUnavailable
from sandmeshd.store import Store, StoreSettings, open_store
from tests.unit.store.servers import ExternalServer, external_server


def _by_socket(server: ExternalServer) -> StoreSettings:
    return StoreSettings(mesh_id="m", url=SecretStr(server.unix_url))


async def _capacity(store: Store) -> object:
    return await store.run("capacity", {})


async def test_one_script_answers_by_tcp_with_a_password_and_by_unix_socket(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server:
        for url in (server.tcp_url, server.unix_url):
            async with open_store(StoreSettings(mesh_id="m", url=SecretStr(url))) as store:
                assert await _capacity(store) == [0, b"0", [], [], [], [], 0]


async def test_meshes_on_one_server_do_not_see_each_other(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server:
        url = SecretStr(server.unix_url)
        async with (
            open_store(StoreSettings(mesh_id="one", url=url)) as one,
            open_store(StoreSettings(mesh_id="two", url=url)) as two,
        ):
            arguments = {"session": "s", "user": "u", "name": "n", "user_key": "k", "keep_seconds": 60}
            await one.run("session_open", arguments)
            assert await one.hash("user_session", "s")
            assert not await two.hash("user_session", "s")
            assert all(key.startswith("sandmesh:{one}:") for key in await one.keys())


async def test_a_wrong_password_is_told_at_once(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server:
        url = f"redis://:wrong@127.0.0.1:{server.port}"
        with pytest.raises(StoreUnavailable, match="password"):
            async with open_store(StoreSettings(mesh_id="m", url=SecretStr(url))):
                pytest.fail("it opened")


async def test_nothing_at_the_address_is_unavailable_with_a_delay_to_retry_after() -> None:
    settings = StoreSettings(mesh_id="m", url=SecretStr("redis://127.0.0.1:1"))
    with pytest.raises(StoreUnavailable) as caught:
        async with open_store(settings):
            pytest.fail("it opened")
    assert caught.value.retry_after is not None


async def test_a_server_that_ends_makes_the_store_unavailable(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server, open_store(_by_socket(server)) as store:
        server.process.kill()
        await server.process.wait()
        with pytest.raises(StoreUnavailable):
            await _capacity(store)


async def test_a_server_that_cannot_write_is_told_as_that_and_with_what_to_do(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server, open_store(_by_socket(server)) as store:
        # redis-py's signatures are partly untyped.
        async with cast("Any", Redis).from_url(server.unix_url) as client:
            await client.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable, match="the store cannot write: ") as caught:
            await store.run("probe", {})
        assert "its disk or memory may be full" in caught.value.facts["fix"]


async def test_a_server_that_forgot_its_scripts_is_taught_them_again(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server, open_store(_by_socket(server)) as store:
        await _capacity(store)
        await _capacity(store)
        # Taught by EVAL once, then known: three trips for two runs.
        assert store.round_trips["capacity"] == 3


@pytest.mark.parametrize("connections", [1, 2, 3])
async def test_many_commands_at_once_share_however_few_connections_there_may_be(
    tmp_path: Path, connections: int
) -> None:
    async with external_server(tmp_path) as server:
        settings = StoreSettings(mesh_id="m", url=SecretStr(server.unix_url), connections=connections)
        async with asyncio.timeout(30), open_store(settings) as store:
            for _ in range(3):
                answers = await asyncio.gather(*(_capacity(store) for _ in range(50)), store.hash("none"))
                assert answers == [[0, b"0", [], [], [], [], 0]] * 50 + [{}]


async def test_a_command_whose_caller_went_away_leaves_no_answer_to_the_next(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server, open_store(_by_socket(server)) as store:
        for turns in range(40):
            gone = asyncio.create_task(_capacity(store))
            for _ in range(turns % 8):
                await asyncio.sleep(0)
            gone.cancel()
            assert await store.hash("none") == {}
            assert await _capacity(store) == [0, b"0", [], [], [], [], 0]
            await asyncio.wait([gone])


async def test_a_connection_that_its_server_closed_meanwhile_is_not_asked(tmp_path: Path) -> None:
    async with external_server(tmp_path) as server, open_store(_by_socket(server)) as store:
        await asyncio.gather(*(_capacity(store) for _ in range(8)))
        async with cast("Any", Redis).from_url(server.unix_url) as client:
            await client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        before = store.round_trips["capacity"]
        await asyncio.gather(*(_capacity(store) for _ in range(8)))
        assert store.round_trips["capacity"] == before + 8


def test_settings_name_one_server() -> None:
    with pytest.raises(ValidationError, match="either url"):
        StoreSettings(mesh_id="m")
    with pytest.raises(ValidationError, match="either url"):
        StoreSettings(mesh_id="m", url=SecretStr("redis://h"), directory=Path("/d"), socket=Path("/s"))
    with pytest.raises(ValidationError, match="mesh_id"):
        StoreSettings(mesh_id="a}b", url=SecretStr("redis://h"))

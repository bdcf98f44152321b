"""A store that comes back empty under a mesh in use: nobody's sandbox is lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from redis.asyncio import Redis

from sandmesh import BaseSandboxAsync, SandboxService
from tests.mesh.conftest import MeshMaker


async def test_sandboxes_in_use_survive_a_store_that_lost_everything(make_mesh: MeshMaker) -> None:
    async with make_mesh(pools={"base": 1}) as mesh:
        address = f"unix://{mesh.addresses[0].removeprefix('unix://')}"
        service = SandboxService(base_url=address, ttl=600)
        await service.start()
        async with BaseSandboxAsync(base_url=address, labels={"team": "red"}, idle_timeout=300) as box:
            [kept] = await service.connect_async("work", "ann")
            await box.run_ipython_cell("x = 41")
            await kept.run_ipython_cell("y = 1")
            before = await box.get_info()
            await _empty(mesh.addresses[0])
            assert (await box.run_ipython_cell("x + 1")).text.strip() == "42"
            after = await _known_again(box)
            for name in ("sandbox_id", "session_key", "slot", "spec", "idle_timeout", "user_id", "node_id", "enforced"):
                assert after.get(name) == before.get(name), name
            assert after["lease"]["fencing_token"] == before["lease"]["fencing_token"]
            [again] = await service.connect_async("work", "ann")
            assert (await again.run_ipython_cell("y + 1")).text.strip() == "2"
            assert "adopted" in [event["kind"] for event in await box.list_events()]
            async with BaseSandboxAsync(base_url=address) as fresh:
                assert fresh.sandbox_id not in (box.sandbox_id, kept.sandbox_id)
                assert (await fresh.run_ipython_cell("1 + 1")).text.strip() == "2"
        await service.release_async("work", "ann")
        await service.stop()


async def _known_again(box: BaseSandboxAsync) -> dict[str, Any]:
    async with asyncio.timeout(20):
        return await box.get_info()


async def _empty(gateway: str) -> None:
    """Take everything from the mesh's own store, as a server that was restarted without its data."""
    folder = gateway.removeprefix("unix://").rpartition("/")[0]
    # redis-py's own signatures are partly untyped.
    async with cast("Any", Redis).from_url(f"unix://{folder}/r") as client:
        await client.flushall()

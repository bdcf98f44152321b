"""What the driver makes of an engine's refusals, as a server on a socket answers with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sandmesh.errors import InternalError
from sandmeshd.drivers.docker.engine import Engine, open_engine


@asynccontextmanager
async def _refusing(folder: Path, status: int) -> AsyncGenerator[Engine]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"ApiVersion": "1.41"})
        return web.json_response({"message": "refused"}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "e.sock")).start()
        async with open_engine(f"unix://{folder}/e.sock") as engine:
            yield engine
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [404, 409])
async def test_a_container_that_is_gone_or_is_being_removed_has_no_log(tmp_path: Path, status: int) -> None:
    async with _refusing(tmp_path, status) as engine:
        assert await engine.log("sandmesh-unit-sb_1") == b""


@pytest.mark.parametrize("status", [400, 404])
async def test_an_image_that_no_name_can_mean_is_one_that_is_not_there(tmp_path: Path, status: int) -> None:
    async with _refusing(tmp_path, status) as engine:
        assert await engine.image("No Image") is None


async def test_what_the_engine_fails_at_is_told_in_its_words(tmp_path: Path) -> None:
    async with _refusing(tmp_path, 500) as engine:
        with pytest.raises(InternalError, match="refused"):
            await engine.log("sandmesh-unit-sb_1")

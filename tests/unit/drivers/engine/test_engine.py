"""What the driver makes of an engine's refusals, as a server on a socket answers with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sandmesh.errors import InternalError, SandboxStartFailed
from sandmeshd.drivers.engine.engine import Engine, open_engine
from sandmeshd.drivers.engine.events import Follower
from sandmeshd.drivers.engine.posture import SANDBOX
from sandmeshd.drivers.engine.reach import sees_files
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.records import Folders
from sandmeshd.runtime.paths import MeshPaths

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _refusing(folder: Path, status: int) -> AsyncGenerator[Engine]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"ApiVersion": "1.41"})
        return web.json_response({"message": "refused"}, status=status)

    async with _answering(folder, answer) as engine:
        yield engine


@asynccontextmanager
async def _answering(folder: Path, answer: Answer) -> AsyncGenerator[Engine]:
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


async def test_what_was_accepted_and_does_not_start_is_no_wrong_request_of_the_caller(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/start"):
            return web.json_response({"message": "a hook failed"}, status=400)
        return web.json_response({"ApiVersion": "1.41", "Id": "made"})

    async with _answering(tmp_path, answer) as engine:
        with pytest.raises(SandboxStartFailed, match="a hook failed"):
            await engine.start("sandmesh-unit-sb_1", {})


NOT_SEEN = 'invalid mount config for type "bind": bind source path does not exist: /run/x'


@pytest.mark.parametrize(("status", "said", "shared"), [(404, "No such image: x", True), (400, NOT_SEEN, False)])
async def test_an_engine_on_tcp_is_used_where_it_sees_what_was_just_made_here(
    tmp_path: Path, status: int, said: str, shared: bool
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"ApiVersion": "1.41"})
        (mount,) = (await request.json())["HostConfig"]["Mounts"]
        asked.append(Path(mount["Source"]))
        return web.json_response({"message": said}, status=status)

    asked: list[Path] = []
    settings = DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path), url="tcp://engine.example:2376")
    settings.paths.runtime.mkdir()
    async with _answering(tmp_path, answer) as engine:
        assert await sees_files(engine, settings) is shared
    assert [path.parent for path in asked] == [settings.paths.runtime]
    assert list(settings.paths.runtime.iterdir()) == []


def _follower(engine: Engine, folder: Path) -> Follower:
    return Follower(engine, ["a=b"], Folders(MeshPaths("unit", folder, folder)), networks=False)


async def test_events_that_broke_off_are_asked_for_again_and_of_a_start_its_starter_is_told(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/events"):
            return web.json_response({"ApiVersion": "1.41"} if request.path == "/version" else [])
        asked.append(request.query["since"])
        told = web.StreamResponse()
        await told.prepare(request)
        if len(asked) == 1:
            await told.write(b'{"Action": "di')
            assert request.transport is not None
            request.transport.abort()
        else:
            for name in ("sb_starting", "sb_running"):
                event = {"Action": "die", "Actor": {"ID": name, "Attributes": {SANDBOX: name}}}
                await told.write(json.dumps(event).encode() + b"\n")
        return told

    async with _answering(tmp_path, answer) as engine:
        follower = _follower(engine, tmp_path)
        following = asyncio.create_task(follower.follow())
        with follower.watching() as changes, follower.end_of("sb_starting") as ended:
            async with asyncio.timeout(30), aclosing(changes.follow()) as ids:
                assert await anext(ids) == "sb_running"
            assert ended.is_set()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert asked[0] < asked[1]


async def test_a_volume_goes_that_had_no_container_at_two_looks(tmp_path: Path) -> None:
    looks = [["one", "two"], ["two"], []]
    removed = asyncio.Queue[str]()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            removed.put_nowait(request.path.rpartition("/")[2])
            return web.Response(status=204)
        if request.path.endswith("/volumes"):
            return web.json_response({"Volumes": [{"Name": name} for name in looks.pop(0)] or None})
        return web.json_response({"ApiVersion": "1.41"})

    async with _answering(tmp_path, answer) as engine:
        tidying = asyncio.create_task(_follower(engine, tmp_path).tidy())
        async with asyncio.timeout(30):
            assert await removed.get() == "two"
        tidying.cancel()
        await asyncio.gather(tidying, return_exceptions=True)
    assert removed.empty()
    assert looks == [[]]

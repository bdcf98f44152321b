"""The errors and events of an engine, simulated by a server on a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from sandmesh.errors import InternalError, RuntimeUnavailable, SandboxStartFailed
from sandmeshd.drivers.engine.connection import sees_files
from sandmeshd.drivers.engine.container_config import SANDBOX
from sandmeshd.drivers.engine.engine import Engine, open_engine
from sandmeshd.drivers.engine.events import EventSubscriber
from sandmeshd.drivers.engine.garbage import GarbageCollector
from sandmeshd.drivers.engine.settings import DockerSettings, how_to_start
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _refusing(folder: Path, status: int) -> AsyncGenerator[Engine]:
    async def handle(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"ApiVersion": "1.41"})
        return web.json_response({"message": "refused"}, status=status)

    async with _serving(folder, handle) as engine:
        yield engine


@asynccontextmanager
async def _serving(folder: Path, handler: Handler) -> AsyncGenerator[Engine]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
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


def test_an_engine_that_is_only_stopped_is_to_be_started_at_its_socket(tmp_path: Path) -> None:
    (tmp_path / "dockerd").touch(mode=0o755)
    url = f"unix://{tmp_path}/e.sock"
    for programs, begin in ((str(tmp_path), "start it (systemctl start docker"), ("/nonexistent", "install Docker")):
        assert how_to_start(url, programs).startswith(begin)
        assert f"so that it listens at {tmp_path}/e.sock" in how_to_start(url, programs)


async def test_an_engine_that_does_not_answer_is_named_with_its_socket(tmp_path: Path) -> None:
    async with open_engine(f"unix://{tmp_path}/e.sock") as engine:
        with pytest.raises(RuntimeUnavailable, match=f"so that it listens at {tmp_path}/e.sock, or set"):
            await engine.info()


async def test_what_the_engine_fails_at_is_told_in_its_words(tmp_path: Path) -> None:
    async with _refusing(tmp_path, 500) as engine:
        with pytest.raises(InternalError, match="refused"):
            await engine.log("sandmesh-unit-sb_1")


async def test_what_was_accepted_and_does_not_start_is_no_wrong_request_of_the_caller(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.path.endswith("/start"):
            return web.json_response({"message": "a hook failed"}, status=400)
        return web.json_response({"ApiVersion": "1.41", "Id": "made"})

    async with _serving(tmp_path, handle) as engine:
        with pytest.raises(SandboxStartFailed, match="a hook failed"):
            await engine.start("sandmesh-unit-sb_1", {})


NO_SOURCE = 'invalid mount config for type "bind": bind source path does not exist: /run/x'


@pytest.mark.parametrize(("status", "message", "shared"), [(404, "No such image: x", True), (400, NO_SOURCE, False)])
async def test_an_engine_on_tcp_is_used_where_it_sees_what_was_just_made_here(
    tmp_path: Path, status: int, message: str, shared: bool
) -> None:
    async def handle(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"ApiVersion": "1.41"})
        (mount,) = (await request.json())["HostConfig"]["Mounts"]
        sources.append(Path(mount["Source"]))
        return web.json_response({"message": message}, status=status)

    sources: list[Path] = []
    settings = DockerSettings(paths=MeshPaths("unit", tmp_path, tmp_path), url="tcp://engine.example:2376")
    settings.paths.runtime.mkdir()
    async with _serving(tmp_path, handle) as engine:
        assert await sees_files(engine, settings) is shared
    assert [path.parent for path in sources] == [settings.paths.runtime]
    assert list(settings.paths.runtime.iterdir()) == []


async def test_events_that_broke_off_are_asked_for_again_and_of_a_start_its_starter_is_told(
    tmp_path: Path,
) -> None:
    since: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/events"):
            return web.json_response({"ApiVersion": "1.41"} if request.path == "/version" else [])
        since.append(request.query["since"])
        response = web.StreamResponse()
        await response.prepare(request)
        if len(since) == 1:
            await response.write(b'{"Action": "di')
            assert request.transport is not None
            request.transport.abort()
        else:
            for name in ("sb_starting", "sb_running"):
                event = {"Action": "die", "Actor": {"ID": name, "Attributes": {SANDBOX: name}}}
                await response.write(json.dumps(event).encode() + b"\n")
        return response

    async with _serving(tmp_path, handle) as engine:
        subscriber = EventSubscriber(engine, ["a=b"])
        following = asyncio.create_task(subscriber.follow(MeshFolders(MeshPaths("unit", tmp_path, tmp_path))))
        with subscriber.watching() as changes, subscriber.end_of("sb_starting") as ended:
            async with asyncio.timeout(30), aclosing(changes.follow()) as ids:
                assert await anext(ids) == "sb_running"
            assert ended.is_set()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert since[0] < since[1]


async def test_a_volume_goes_that_had_no_container_at_two_looks(tmp_path: Path) -> None:
    unused = [["one", "two"], ["two"], []]
    removed = asyncio.Queue[str]()

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            removed.put_nowait(request.path.rpartition("/")[2])
            return web.Response(status=204)
        if request.path.endswith("/volumes"):
            return web.json_response({"Volumes": [{"Name": name} for name in unused.pop(0)] or None})
        return web.json_response({"ApiVersion": "1.41"})

    async with _serving(tmp_path, handle) as engine:
        collector = GarbageCollector(engine, ["a=b"], EventSubscriber(engine, ["a=b"]), networks=False)
        collecting = asyncio.create_task(collector.collect())
        async with asyncio.timeout(30):
            assert await removed.get() == "two"
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)
    assert removed.empty()
    assert unused == [[]]

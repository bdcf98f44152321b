"""Agents that are reached through an API server: each connection is a WebSocket that carries its bytes as they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web

from sandmeshd.agentlink.addresses import read_address
from sandmeshd.drivers.kubernetes.cluster.credentials import open_cluster
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.reach import PodReach
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths

PORT = (8571).to_bytes(2, "little")
Speak = Callable[[web.WebSocketResponse], Awaitable[None]]


@asynccontextmanager
async def _reach(folder: Path, speak: Speak) -> AsyncGenerator[tuple[PodReach, str]]:
    """Yield a way through a server that speaks as an API server does, and the socket's path."""

    async def forward(request: web.Request) -> web.WebSocketResponse:
        assert request.query["ports"] == "8571"
        assert request.headers["Authorization"] == "Bearer secret"
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        for channel in (b"\x00", b"\x01"):
            await socket.send_bytes(channel + PORT)
        await speak(socket)
        return socket

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/sandboxes/pods/sm-one/portforward", forward)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with _cluster(folder, f"http://127.0.0.1:{runner.addresses[0][1]}") as cluster:
            reach = PodReach(cluster, folder / "f")
            await reach.open("sm-one")
            endpoint = reach.endpoint("sm-one", "tls://10.0.0.1:8571?pin=ab")
            assert (read_address(endpoint).pin, read_address(endpoint).path) == ("ab", str(folder / "f" / "sm-one"))
            yield reach, read_address(endpoint).path
            await reach.close_all()
            assert not (folder / "f").exists()
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _cluster(folder: Path, url: str) -> AsyncGenerator[Cluster]:
    config = {
        "clusters": [{"name": "one", "cluster": {"server": url}}],
        "users": [{"name": "one", "user": {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one", "namespace": "sandboxes"}}],
        "current-context": "one",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    settings = KubernetesSettings(paths=MeshPaths("one", folder, folder), kubeconfig=folder / "kubeconfig")
    async with open_cluster(settings) as cluster:
        yield cluster


async def _echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            await socket.send_bytes(b"\x00" + message.data[1:].upper())


async def test_bytes_go_there_and_back_over_connections_that_are_apart(tmp_path: Path) -> None:
    async with _reach(tmp_path, _echo) as (_, path):
        ends = [await asyncio.open_unix_connection(path) for _ in range(3)]
        for number, (reader, writer) in enumerate(ends):
            writer.write(f"end {number}".encode())
            assert await reader.readexactly(5) == f"END {number}".encode()
        large = b"x" * 1_000_000
        ends[0][1].write(large)
        assert await ends[0][0].readexactly(len(large)) == large.upper()
        for _, writer in ends:
            writer.close()
            await writer.wait_closed()


async def test_a_pod_with_another_name_than_its_sandbox_is_reached_by_its_own(tmp_path: Path) -> None:
    async with _reach(tmp_path, _echo) as (reach, _):
        await reach.open("sm-claim", "sm-one")
        endpoint = reach.plain_endpoint("sm-claim", "tls://10.0.0.1:8571?pin=ab")
        reader, writer = await asyncio.open_unix_connection(read_address(endpoint).path)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"A"
        writer.close()


async def test_a_port_that_the_server_cannot_reach_is_a_connection_that_ends(tmp_path: Path) -> None:
    async def refuse(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b"\x01an error forwarding port 8571: connection refused")
        await socket.receive()

    async with _reach(tmp_path, refuse) as (_, path):
        reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize("after", ["close", "nothing"])
async def test_a_way_that_is_closed_ends_its_connections(tmp_path: Path, after: str) -> None:
    async with _reach(tmp_path, _echo) as (reach, path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"a")
        assert await reader.readexactly(1) == b"A"
        if after == "close":
            await reach.close("sm-one")
            assert await reader.read() == b""
        writer.close()

"""Sandboxes that nobody uses are reaped, but not while somebody watches them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from sandmesh import BrowserSandboxAsync, GuiSandboxAsync, MeshAsync
from sandmesh.errors import SandboxNotFound
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.needs("user namespaces"), pytest.mark.asyncio(loop_scope="module")]

IDLE_SECONDS = 5.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    """Run the mesh of all these tests."""
    async with run_mesh() as running:
        yield running


@asynccontextmanager
async def watching(url: str) -> AsyncGenerator[None]:
    """Watch as the page at a URL does, without its other requests."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}websocket?viewer={'a' * 32}") as socket,
    ):
        await socket.receive()
        yield


async def reaped(client: MeshAsync, sandbox_id: str) -> str:
    """Wait until a sandbox is no more, and return why; its record is all that is looked at."""
    while True:
        try:
            await client.sandboxes.get(sandbox_id)
        except SandboxNotFound:
            events = await client.events.list(sandbox_id)
            return next(event.reason for event in events if event.kind == "stopping")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("browser", marks=pytest.mark.needs("chromium")),
        pytest.param("gui", marks=pytest.mark.needs("desktop")),
    ],
)
async def test_a_watched_sandbox_is_kept_and_reaped_when_nobody_watches(mesh: Mesh, kind: str) -> None:
    address = mesh.addresses[0]
    options: dict[str, Any] = {"idle_timeout": IDLE_SECONDS, "timeout": 120}
    box: Any = (BrowserSandboxAsync if kind == "browser" else GuiSandboxAsync)(base_url=address, **options)
    async with asyncio.timeout(120), MeshAsync(address) as client:
        await box.start()
        url = await (box.browser if kind == "browser" else box.desktop).url(readonly=True)
        async with watching(url):
            # One that nobody watches is used later than the one that is watched, and ends before it.
            alone = BrowserSandboxAsync(base_url=address, **options)
            await alone.start()
            assert "idle" in await reaped(client, alone.sandbox_id)
            assert (await client.sandboxes.get(box.sandbox_id)).state == "READY"
        assert "idle" in await reaped(client, box.sandbox_id)

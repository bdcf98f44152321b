"""Meshes that do what the test says: in the test's loop, or in a thread of its own for code that has no loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest

from .stand_in import StandIn, cell


@dataclass
class World:
    """A mesh that answers at an address."""

    mesh: StandIn
    address: str


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Run a mesh in the test's loop."""
    mesh = StandIn()
    mesh.tools["run_ipython_cell"] = cell
    async with asyncio.timeout(30), mesh.serve() as address:
        yield World(mesh, address)


@pytest.fixture
def threaded_world() -> Iterator[World]:
    """Run a mesh in a thread."""
    mesh = StandIn()
    mesh.tools["run_ipython_cell"] = cell
    ready, made, ends = threading.Event(), World(mesh, ""), list[Callable[[], object]]()

    async def serve() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(ended.set))
        async with mesh.serve() as address:
            made.address = address
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(20)
    yield made
    ends[0]()
    thread.join(20)

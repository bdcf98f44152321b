"""Progress messages of a create that waits for its template."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.api.sandbox.v1.sandbox_pb2 import GetMeshHealthResponse, Preparation
from sandmesh.errors import PermissionDenied
from sandmesh.sandbox.session import create_progress

from .conftest import World


@pytest.fixture
def held(world: World, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    monkeypatch.setattr(create_progress, "POLL_SECONDS", 0.02)
    world.mesh.hold_connects = asyncio.Event()
    return world.mesh.hold_connects


def health(step: str) -> GetMeshHealthResponse:
    others = Preparation(template="another", step="unpacking")
    return GetMeshHealthResponse(preparations=[others, Preparation(template="base", step=step)])


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(20):
        while text not in caplog.text:  # noqa: ASYNC110 - logging has no event
            await asyncio.sleep(0.01)


async def test_each_step_of_ones_own_template_is_told_once(
    world: World, held: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    world.mesh.health = health("pulling one")
    box = BaseSandboxAsync(base_url=world.address)
    starting = asyncio.create_task(box.start())
    await until_logged(caplog, "the template base is being prepared: pulling one")
    world.mesh.health = health("pulling two")
    await until_logged(caplog, "pulling two")
    held.set()
    await starting
    await box.close()
    requests = len(world.mesh.requests)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    await asyncio.sleep(0.1)
    assert len(world.mesh.requests) == requests


async def test_who_may_not_see_the_mesh_hears_that_it_waits(
    world: World, held: asyncio.Event, caplog: pytest.LogCaptureFixture
) -> None:
    world.mesh.health = PermissionDenied("not yours")
    box = BaseSandboxAsync(base_url=world.address)
    starting = asyncio.create_task(box.start())
    await until_logged(caplog, "still waiting for a sandbox of base")
    held.set()
    await starting
    await box.close()
    assert len(caplog.records) == 1

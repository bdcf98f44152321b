"""A sandbox for the tests that share one, and what others are made from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

import pytest

from .client import Client
from .sandbox import Ground, Sandbox, prepare_ground, running


@pytest.fixture(scope="session")
def ground() -> Ground:
    """Everything a sandbox is made from."""
    return asyncio.run(prepare_ground())


@pytest.fixture(scope="module")
def sandbox(ground: Ground) -> Generator[Sandbox]:
    """A running agent that the tests of a module share."""
    with running(ground) as started:
        yield started


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncGenerator[Client]:
    """A link to it."""
    async with asyncio.timeout(60), sandbox.connect() as opened:
        yield opened

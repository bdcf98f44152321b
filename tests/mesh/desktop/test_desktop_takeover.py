"""A person takes over a desktop while a call of the agent is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import GuiSandboxAsync
from tests.mesh.conftest import run_mesh
from tests.mesh.people import interrupted, quiet, watching

pytestmark = [pytest.mark.needs("desktop"), pytest.mark.asyncio(loop_scope="module")]

LOG = "stty -icanon -echo; cat > typed"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncGenerator[GuiSandboxAsync]:
    """Run a sandbox with a terminal on its desktop, which writes what is typed to a file."""
    async with (
        run_mesh() as mesh,
        GuiSandboxAsync(base_url=mesh.addresses[0], timeout=60) as running,
    ):
        await running.desktop.launch("xterm", "-maximized", "-e", "sh", "-c", LOG)
        async with asyncio.timeout(60):
            while not [window for window in await running.desktop.windows() if "tint2" not in window.title]:
                pass
        yield running


async def typed(box: GuiSandboxAsync) -> int:
    """Return how many characters arrived."""
    return int((await box.run_shell_command("cat typed 2>/dev/null | wc -c")).text)


async def test_a_long_text_ends_when_a_person_takes_over(box: GuiSandboxAsync) -> None:
    async with watching(await box.desktop.url()) as person:
        await quiet(person)
        text = await interrupted(person, box.computer_use("type", text="0123456789" * 80))
        assert "A person took over the desktop during this call, which was ended there" in text
        arrived = await typed(box)
        await asyncio.sleep(1.5)  # a text that goes on, or a key that stays down, would write more
        assert await typed(box) == arrived < 800
        await person.control("hand_back")
        assert not (await box.computer_use("type", text="x")).is_error


async def test_a_key_that_was_held_is_released_when_a_person_takes_over(box: GuiSandboxAsync) -> None:
    async with watching(await box.desktop.url()) as person:
        await quiet(person)
        await interrupted(person, box.computer_use("hold_key", text="a", duration=60))
        arrived = await typed(box)
        await asyncio.sleep(1.5)  # a key that stays down repeats itself
        assert await typed(box) == arrived

"""The page that shows a desktop, as people use it: the clipboard, the keyboard, the empty desktop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import GuiSandboxAsync
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, PERSON, viewing

pytestmark = [
    pytest.mark.needs("desktop"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncGenerator[GuiSandboxAsync]:
    """Run a sandbox with a small terminal on its desktop."""
    async with (
        run_mesh() as mesh,
        GuiSandboxAsync(base_url=mesh.addresses[0], timeout=60) as running,
    ):
        await running.desktop.launch("xterm", "-geometry", "40x10+20+20")
        async with asyncio.timeout(60):
            while not [window for window in await running.desktop.windows() if "tint2" not in window.title]:
                pass
        yield running


@pytest.mark.parametrize("kind", ["readonly", "idle"])
async def test_a_viewer_that_only_watches_outlives_the_agents_clipboard(box: GuiSandboxAsync, kind: str) -> None:
    async with viewing(await box.desktop.url(readonly=kind == "readonly")) as person:
        await person.do("await", AGENT)
        await person.sees_a_picture(1024, 768)
        assert await person.do("visible", "#clipboard") is False
        for text in ("short", "Grüße 你好 " * 2000, "again"):
            await box.desktop.set_clipboard(text)
            # Where the connection broke, its page would say so until it had another.
            await box.desktop.resize(1280, 800)
            await person.sees_a_picture(1280, 800)
            await box.desktop.resize(1024, 768)
            await person.sees_a_picture(1024, 768)
        assert await person.do("connections") == 1


async def test_a_person_in_control_has_the_clipboard_and_finds_hand_back(box: GuiSandboxAsync) -> None:
    async with viewing(await box.desktop.url()) as person:
        await person.sees_a_picture(1024, 768)
        await person.do("chord", "Tab")
        await person.do("chord", "Enter")
        await person.do("await", PERSON)
        assert await person.do("visible", "#clipboard") is True
        await person.do("chord", "Control+Alt+Enter")
        assert await person.do("focused") == "hand-back"
        await person.do("chord", "Enter")
        await person.do("await", AGENT)
        assert await person.do("visible", "#clipboard") is False


async def test_a_scroll_on_the_empty_desktop_leaves_the_windows_in_sight(box: GuiSandboxAsync) -> None:
    visible = "DISPLAY=:0 xdotool search --onlyvisible --class xterm"
    assert not (await box.run_shell_command(visible)).is_error
    for direction in ("down", "up", "down"):
        assert not (await box.computer_use("scroll", [800, 500], scroll_direction=direction, scroll_amount=1)).is_error
        assert not (await box.run_shell_command(visible)).is_error

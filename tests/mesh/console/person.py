"""A person with a browser: real Chromium, on the pages of a console that is served for a mesh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import Browser, Page, async_playwright

from sandmesh import BaseSandboxAsync
from sandmeshd.facades.console.app import Console, open_console
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

CHROMIUM = "/usr/lib/chromium/chromium"
DESK, PHONE = (1440, 900), (390, 844)


@dataclass(frozen=True)
class Person:
    """A page, what it asked for and what it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list[str])
    complaints: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class ConsoleWorld:
    """A mesh, its console and a browser."""

    mesh: Mesh
    console: Console
    browser: Browser

    @property
    def address(self) -> str:
        """The mesh's address."""
        return self.mesh.addresses[0]

    @asynccontextmanager
    async def person(
        self, link: str, size: tuple[int, int] = DESK, *, dark: bool = False, place: str = ""
    ) -> AsyncGenerator[Person]:
        """Open a link in a browser without any cookies, and go on to a place as soon as its page is there."""
        context = await self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        try:
            person = Person(await context.new_page())
            person.page.on("request", lambda request: person.requests.append(request.url))
            person.page.on("pageerror", lambda error: person.complaints.append(str(error)))
            if place:
                script = f"addEventListener('load', () => {{ location.hash = '#/{place}' }})"
                await person.page.add_init_script(script)
            await person.page.goto(link)
            yield person
        finally:
            await context.close()


@asynccontextmanager
async def open_world() -> AsyncGenerator[ConsoleWorld]:
    """Run a mesh with a console, and a browser."""
    async with (
        run_mesh() as mesh,
        open_console(mesh.addresses[0], "127.0.0.1:0") as console,
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        yield ConsoleWorld(mesh, console, browser)


async def show(page: Page, box: BaseSandboxAsync, tab: str) -> None:
    """Go to a view of a sandbox."""
    await page.evaluate("hash => { location.hash = hash }", f"#/sandbox/{box.sandbox_id}/{tab}")


async def run_code(page: Page, code: str) -> None:
    """Run a cell."""
    await page.locator("#code").fill(code)
    await page.keyboard.press("Shift+Enter")


async def no_shell_runs(box: BaseSandboxAsync) -> None:
    """Wait until no process of a sandbox runs."""
    async with asyncio.timeout(60):
        while any(process.running for process in await box.processes.list()):
            pass


async def typed(page: Page, text: str) -> None:
    """Type a line into the terminal."""
    await page.locator(".xterm-helper-textarea").press_sequentially(text)
    await page.keyboard.press("Enter")

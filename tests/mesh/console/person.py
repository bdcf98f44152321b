"""A person with a browser: real Chromium, on the pages of a console that is served for a mesh."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import Browser, Page, async_playwright

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
    async def person(self, link: str, size: tuple[int, int] = DESK, *, dark: bool = False) -> AsyncGenerator[Person]:
        """Open a link in a browser without any cookies."""
        context = await self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        try:
            person = Person(await context.new_page())
            person.page.on("request", lambda request: person.requests.append(request.url))
            person.page.on("pageerror", lambda error: person.complaints.append(str(error)))
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

"""Starts browsers by Playwright's driver, a separate program that is restarted if it was killed."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from playwright.async_api import BrowserContext, Error, Playwright, ViewportSize, async_playwright

from sandmeshd.agent.userland.browser import chromium
from sandmeshd.agent.userland.browser.answer import BrowserFailure

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_SCREEN: Final = ViewportSize(width=1280, height=720)


class Launcher:
    """The driver, once a browser was started, and the browsers' profile."""

    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._playwright: Playwright | None = None

    async def launch(self) -> BrowserContext:
        """Start a browser with the profile.

        Raises:
            BrowserFailure: It does not start.
        """
        program = chromium.find_program()
        if self._playwright is not None:
            # It may have been killed since it was used last, of which the next use tells.
            with suppress(Error):
                return await self._launch(self._playwright, program)
            await self.stop()
        try:
            self._playwright = await async_playwright().start()
        except Exception as error:  # its own class for a driver that does not run is this one
            raise BrowserFailure(f"Playwright's driver does not start: {error}") from None
        try:
            return await self._launch(self._playwright, program)
        except Error as error:
            await self.stop()
            raise BrowserFailure(f"The browser does not start: {error.message[-1500:]}") from None

    async def _launch(self, playwright: Playwright, program: str) -> BrowserContext:
        chromium.prepare_profile(self._profile)
        return await playwright.chromium.launch_persistent_context(
            self._profile,
            executable_path=program,
            args=chromium.arguments(),
            env={**os.environ},
            headless=True,
            timeout=_START_SECONDS * 1000,
            viewport=_SCREEN,
        )

    async def stop(self) -> None:
        """End the driver; the next browser is started by another."""
        playwright, self._playwright = self._playwright, None
        if playwright is not None:
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await playwright.stop()

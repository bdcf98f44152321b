"""The tools that keep a login: cookies and storage to a file of the workspace and back; and where debuggers connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.async_api import Error

from sandmeshd.agent.userland.browser import chromium
from sandmeshd.agent.userland.browser.answer import BrowserAnswer, BrowserFailure
from sandmeshd.agent.userland.browser.captures import writable
from sandmeshd.agent.userland.browser.session import BrowserSession


async def save_state(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Write cookies and local storage to a file."""
    path = writable(session.workspace, arguments["filename"])
    context = await session.context()
    state = await context.storage_state()
    path.write_text(json.dumps(state, indent=2))
    path.chmod(0o600)
    counts = f"{len(state.get('cookies', []))} cookies, storage of {len(state.get('origins', []))} origins"
    answer.add(f"- Saved {counts} to {arguments['filename']}")


async def load_state(session: BrowserSession, arguments: dict[str, Any], answer: BrowserAnswer) -> None:
    """Replace cookies and local storage by those of a file."""
    path = (session.workspace / arguments["filename"]).resolve()
    if not path.is_relative_to(session.workspace.resolve()) or not path.is_file():
        raise BrowserFailure(
            f"{arguments['filename']!r} is not a file of the workspace: browser_storage_state makes one."
        )
    context = await session.context()
    try:
        await context.set_storage_state(Path(path))
    except (Error, ValueError, TypeError, KeyError) as error:
        raise BrowserFailure(f"{arguments['filename']!r} could not be restored: {error}") from None
    answer.add(f"- Restored cookies and storage from {arguments['filename']}; reload pages that are open")


async def settle_profile(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """Close the browser, and keep of its profile what the next one needs."""
    await session.close(keep_cookies=True)
    chromium.drop_caches(session.profile)
    answer.add("settled")


async def debugging_address(session: BrowserSession, _: dict[str, Any], answer: BrowserAnswer) -> None:
    """Return where the browser speaks the DevTools protocol inside the sandbox."""
    await session.context()
    port, path = chromium.debugging_address(session.profile)
    answer.structured = {"port": port, "path": path}
    answer.add(f"ws://127.0.0.1:{port}{path}")

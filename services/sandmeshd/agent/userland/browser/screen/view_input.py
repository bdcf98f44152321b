"""What a person who has taken over does with the mouse, the keyboard and the tabs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from playwright.async_api import Error

from sandmeshd.agent.userland.browser.screen.follower import DevTools
from sandmeshd.agent.userland.browser.session import BrowserSession
from sandmeshd.agent.userland.browser.tab import Tab

_MOUSE: Final = {"move": "mouseMoved", "down": "mousePressed", "up": "mouseReleased", "wheel": "mouseWheel"}
_BUTTONS: Final = ("none", "left", "middle", "right", "back", "forward")
_MOST_WAITING: Final = 256
"""A page that does not answer keeps this much input at most; what comes then is dropped."""
_LONGEST_NAME: Final = 32
_NOTE_SECONDS: Final = 0.1
_LONGEST_NOTE_SECONDS: Final = 5.0


class ViewInput:
    """Carries out input in its order."""

    def __init__(self, session: BrowserSession) -> None:
        self.size = (0.0, 0.0)
        """Of the page as it is drawn, in its own pixels."""
        self._session = session
        self._waiting: set[asyncio.Task[None]] = set()
        self._typed = False
        self._noting: asyncio.Task[None] | None = None

    def take(self, tab: Tab, cdp: DevTools | None, message: dict[str, Any]) -> None:
        """Carry out a message in a tab.

        Raises:
            ValueError: It is none that a viewer sends; so do TypeError and KeyError.
        """
        kind = message["t"]
        if kind == "dialog":
            self._answer(tab, message)
        elif kind == "tab":
            self._select(int(message["n"]))
        elif kind == "go":
            self._go(tab, message["to"])
        elif cdp is not None and tab.dialog is None:
            self._start(cdp.send(*_event(message, self.size)))
            if kind in ("text", "key"):
                self._note_passwords(tab)

    def _note_passwords(self, tab: Tab) -> None:
        """Note what a person types as a password, before the page may show it in plain."""
        self._typed = True
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note(tab))

    async def _note(self, tab: Tab) -> None:
        while self._typed:
            # A moment later, so that all that was typed by then is in it.
            await asyncio.sleep(_NOTE_SECONDS)
            self._typed = False
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(_LONGEST_NOTE_SECONDS):
                    await tab.note_passwords()

    def _answer(self, tab: Tab, message: dict[str, Any]) -> None:
        # What was written for a dialog is for no other: this one may have opened since.
        if message.get("number", tab.dialog_number) != tab.dialog_number:
            return
        dialog, tab.dialog = tab.dialog, None
        if dialog is not None:
            self._start(dialog.accept(str(message.get("text") or "")) if message["accept"] else dialog.dismiss())

    def _select(self, index: int) -> None:
        tabs = self._session.tabs
        if 0 <= index < len(tabs):
            self._session.select(tabs[index])
            self._start(tabs[index].page.bring_to_front())

    def _go(self, tab: Tab, to: str) -> None:
        ways = {"back": tab.page.go_back, "forward": tab.page.go_forward, "reload": tab.page.reload}
        self._start(ways[to](wait_until="commit"))

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start an action without waiting for its end: a dialog that it opens would hold up all that follows."""
        if len(self._waiting) >= _MOST_WAITING:
            work.close()
            return
        task = asyncio.create_task(_ignored(work))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)


def _event(message: dict[str, Any], size: tuple[float, float]) -> tuple[str, dict[str, Any]]:
    """Return the method and the parameters of the browser's protocol for an event."""
    kind = message["t"]
    if kind == "text":
        return "Input.insertText", {"text": str(message["text"])}
    modifiers = int(message.get("m") or 0) & 15
    if kind == "key":
        return "Input.dispatchKeyEvent", {**_key(message), "modifiers": modifiers}
    number = int(message.get("b", -1)) + 1
    button = _BUTTONS[number] if 0 <= number < len(_BUTTONS) else "none"
    return "Input.dispatchMouseEvent", {
        "type": _MOUSE[message["k"]],
        "x": _within(message["x"]) * size[0],
        "y": _within(message["y"]) * size[1],
        "button": button,
        "buttons": int(message.get("held") or 0) & 31,
        "clickCount": int(message.get("n") or 0),
        "deltaX": float(message.get("dx") or 0),
        "deltaY": float(message.get("dy") or 0),
        "modifiers": modifiers,
    }


def _key(message: dict[str, Any]) -> dict[str, Any]:
    key, code = str(message["key"])[:_LONGEST_NAME], str(message.get("code") or "")[:_LONGEST_NAME]
    common = {"key": key, "code": code, "windowsVirtualKeyCode": int(message.get("vk") or 0)}
    if message["k"] == "up":
        return {"type": "keyUp", **common}
    # With Control or Meta a letter is a command.
    text = "\r" if key == "Enter" else key if len(key) == 1 and not int(message.get("m") or 0) & 6 else ""
    return {"type": "keyDown" if text else "rawKeyDown", **common, "text": text, "unmodifiedText": text}


def _within(value: Any) -> float:
    return min(1.0, max(0.0, float(value)))


async def _ignored(work: Coroutine[Any, Any, Any]) -> None:
    with suppress(Error):
        await work

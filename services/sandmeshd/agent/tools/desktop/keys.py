"""Names of keys: those of X, and what models of several vendors write for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_SYNONYMS: Final = {
    "enter": "Return",
    "return": "Return",
    "esc": "Escape",
    "escape": "Escape",
    "backspace": "BackSpace",
    "delete": "Delete",
    "del": "Delete",
    "insert": "Insert",
    "tab": "Tab",
    "space": "space",
    "home": "Home",
    "end": "End",
    "pageup": "Page_Up",
    "page_up": "Page_Up",
    "pagedown": "Page_Down",
    "page_down": "Page_Down",
    "arrowup": "Up",
    "arrowdown": "Down",
    "arrowleft": "Left",
    "arrowright": "Right",
    "up": "Up",
    "down": "Down",
    "left": "Left",
    "right": "Right",
    "ctrl": "ctrl",
    "control": "ctrl",
    "alt": "alt",
    "option": "alt",
    "shift": "shift",
    "cmd": "super",
    "command": "super",
    "meta": "super",
    "win": "super",
    "super": "super",
    "capslock": "Caps_Lock",
    "+": "plus",
    "-": "minus",
    "/": "slash",
    ",": "comma",
    ".": "period",
    "=": "equal",
    "*": "asterisk",
}
_OPTIONS_OF_CLICK: Final = 5
"""How far its button is behind the word itself: repeat and delay are between them."""
_FUNCTION: Final = {f"f{number}": f"F{number}" for number in range(1, 25)}


def chord(text: str) -> str:
    """Return keys that are pressed together, as xdotool takes them: "CTRL+ENTER" is "ctrl+Return"."""
    parts = ["+"] if text.strip() == "+" else [part for part in text.strip().split("+") if part] or [""]
    return "+".join(_name(part.strip()) for part in parts)


def chords(text: str) -> list[str]:
    """Return the combinations of a text, which white space separates."""
    return [chord(each) for each in text.split()]


def _name(part: str) -> str:
    lower = part.lower()
    return _SYNONYMS.get(lower) or _FUNCTION.get(lower) or part


def released(words: Sequence[str]) -> list[str]:
    """Return the words of xdotool that release every key and button that some of its words press."""
    pressed = [(f"{word[:-4]}up", name) for word, name in pairwise(words) if word in ("keydown", "mousedown")]
    if "click" in words:
        pressed.append(("mouseup", words[words.index("click") + _OPTIONS_OF_CLICK]))
    if words[:1] == ("key",):
        pressed += [("keyup", name) for name in words[1:] if not name.startswith("--")]
    return [part for each in pressed for part in each]

"""Actions of computer-use models in their vendors' forms, as calls of `computer_use`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandmesh._tools import build
from sandmesh._tools.desktop import Action, ComputerUse
from sandmesh.errors import InvalidArgument

_BUTTONS: Mapping[str, Action] = {
    "left": "left_click",
    "right": "right_click",
    "wheel": "middle_click",
    "middle": "middle_click",
    "back": "back_click",
    "forward": "forward_click",
}
_STEP_PIXELS = 100
"""What OpenAI's models scroll in one step of the wheel."""

Values = Mapping[str, Any]


def translate(action: Values) -> Sequence[ComputerUse]:
    """Return the calls of an action.

    Raises:
        InvalidArgument: It has neither vendor's form, or lacks a value.
    """
    if "action" in action:
        return [build(ComputerUse, **dict(action))]
    kind = action.get("type")
    if kind not in _OPENAI:
        known = ", ".join(_OPENAI)
        message = f"an action has an 'action' (Anthropic) or a 'type' among {known} (OpenAI), not {dict(action)!r}"
        raise InvalidArgument(message, {"argument": "action"})
    try:
        return _OPENAI[str(kind)](action)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        message = f"the action {kind} lacks a value, or has one that does not fit: {error}"
        raise InvalidArgument(message, {"argument": "action"}) from None


def _point(values: Values) -> list[float]:
    return [float(values["x"]), float(values["y"])]


def _held(values: Values) -> str | None:
    return " ".join(values.get("keys") or ()) or None


def _click(values: Values) -> Sequence[ComputerUse]:
    button = values.get("button", "left")
    if button not in _BUTTONS:
        raise ValueError(f"button {button!r} is none of {', '.join(_BUTTONS)}")
    return [build(ComputerUse, _BUTTONS[button], _point(values), _held(values))]


def _scroll(values: Values) -> Sequence[ComputerUse]:
    found: list[ComputerUse] = []
    for name, back, forth in (("scroll_y", "up", "down"), ("scroll_x", "left", "right")):
        pixels = float(values.get(name) or 0)
        if pixels:
            steps = min(100, max(1, round(abs(pixels) / _STEP_PIXELS)))
            options: dict[str, Any] = {"scroll_direction": forth if pixels > 0 else back, "scroll_amount": steps}
            found.append(build(ComputerUse, "scroll", _point(values), _held(values), **options))
    return found


def _drag(values: Values) -> Sequence[ComputerUse]:
    start, *rest = [_point(point) for point in values["path"]]
    if held := _held(values):
        if len(rest) != 1:
            raise ValueError("keys are held along a path of two points only")
        return [build(ComputerUse, "left_click_drag", rest[0], held, start)]
    moves = [build(ComputerUse, "mouse_move", point) for point in rest]
    down = build(ComputerUse, "left_mouse_down", start)
    return [down, *moves, build(ComputerUse, "left_mouse_up", rest[-1])]


_OPENAI: Mapping[str, Callable[[Values], Sequence[ComputerUse]]] = {
    "screenshot": lambda _: [build(ComputerUse, "screenshot")],
    "click": _click,
    "double_click": lambda values: [build(ComputerUse, "double_click", _point(values), _held(values))],
    "move": lambda values: [build(ComputerUse, "mouse_move", _point(values))],
    "scroll": _scroll,
    "drag": _drag,
    "keypress": lambda values: [build(ComputerUse, "key", text="+".join(values["keys"]))],
    "type": lambda values: [build(ComputerUse, "type", text=values["text"])],
    "wait": lambda _: [build(ComputerUse, "wait", duration=1.0)],
}

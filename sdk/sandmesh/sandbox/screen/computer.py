"""A desktop as the computer tools of models' vendors: `box.desktop.computer("anthropic")`.

The forms are those of https://platform.claude.com/docs/en/agents-and-tools/tool-use/computer-use-tool and of
https://developers.openai.com/api/docs/guides/tools-computer-use.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from sandmesh._client.sync import Facade, blocking
from sandmesh._tools import Tool, build
from sandmesh._tools.desktop import ComputerUse, TakeScreenshot
from sandmesh._tools.forms import write_reply
from sandmesh.errors import InvalidArgument, WrongState
from sandmesh.results import ToolResult

if TYPE_CHECKING:
    from sandmesh.sandbox.screen.desktop import ScreenInfo

Vendor = Literal["anthropic", "openai"]
Values = Mapping[str, Any]

_LONGEST_SIDE = 1568
_MOST_PIXELS = 1_150_000
"""What Anthropic's models see of an image at most: a larger one is made smaller before they see it."""
_SETTLE_SECONDS = 0.3
"""A program draws what an action leads to a moment later."""
_LOOKS = ("screenshot", "get_screenshot")
_POSITIONS = ("cursor_position", "get_cursor_position")
_POINTS = ("coordinate", "start_coordinate", "region")
_LENGTHS = ("x", "y", "scroll_x", "scroll_y")


class ComputerAsync(ABC):
    """A desktop for a model: `tool` is declared to it, and its calls are carried out by `reply`.

    A screen that is larger than what models see is shown to them smaller, and the coordinates in their calls are
    converted back. It is of the screen's size when this was made: make another one after `desktop.resize`.
    """

    def __init__(
        self,
        act: Callable[[Values], Awaitable[ToolResult]],
        call: Callable[[Tool], Awaitable[ToolResult]],
        screen: ScreenInfo,
    ) -> None:
        self._act_on = act
        self._call = call
        self._screen = screen
        pixels = screen.width * screen.height
        self.scale = min(1.0, _LONGEST_SIDE / max(screen.width, screen.height), math.sqrt(_MOST_PIXELS / pixels))
        """The size of the images that the model sees, as a share of the screen's."""

    @property
    @abstractmethod
    def tool(self) -> dict[str, Any]:
        """The tool as the vendor's API takes it."""

    async def reply(self, call: object, *, acknowledge: bool = False) -> list[dict[str, Any]]:
        """Carry out a call of the model and return what answers it, with a screenshot, for the next request.

        Anthropic's calls are tool_use blocks, each answered by a tool_result. OpenAI's are computer_call items, with
        one or more actions, each answered by a computer_call_output; a message follows if an action failed, and those
        after it are left out. `acknowledge` says that a person has seen the safety checks that a call may have.

        Raises:
            InvalidArgument: It is not a call of this tool. What the model did wrong in one is in the answer.
            WrongState: The call has safety checks, and they are not acknowledged.
        """
        return await self._reply(_plain(call), acknowledge=acknowledge)

    @abstractmethod
    async def _reply(self, call: Values, *, acknowledge: bool) -> list[dict[str, Any]]: ...

    def _seen(self) -> tuple[int, int]:
        return round(self._screen.width * self.scale), round(self._screen.height * self.scale)

    def _on_screen(self, action: Values) -> dict[str, Any]:
        """Return an action with the screen's own coordinates."""
        found = dict(action)
        for name in _POINTS:
            if isinstance(found.get(name), list | tuple):
                found[name] = [round(side / self.scale) for side in cast("Sequence[float]", found[name])]
        for name in _LENGTHS:
            if isinstance(found.get(name), int | float):
                found[name] = round(found[name] / self.scale)
        if isinstance(found.get("path"), list | tuple):
            found["path"] = [self._on_screen(_plain(point)) for point in found["path"]]
        return found

    async def _act(self, action: Values) -> ToolResult:
        """Carry out an action; one that does not fit is a result that says so."""
        try:
            return await self._act_on(self._on_screen(action))
        except InvalidArgument as error:
            return ToolResult({"content": [{"type": "text", "text": error.message}], "isError": True})

    async def _shot(self, region: Sequence[int] | None = None, *, settled: bool = False) -> ToolResult:
        if not settled:
            await self._call(build(ComputerUse, "wait", duration=_SETTLE_SECONDS))
        scale = self.scale
        if region is not None:
            # The part fills what the whole would have: that is what zooming is for.
            width, height = self._seen()
            scale = min(4.0, width / max(1, region[2] - region[0]), height / max(1, region[3] - region[1]))
        return await self._call(build(TakeScreenshot, None if region is None else list(region), scale, "png"))

    def _factor(self) -> str:
        size = f"The screen is {self._screen.width}x{self._screen.height}"
        return f"{size}: the image has {self.scale:.3g} times its size, and coordinates are the image's."


class AnthropicComputerAsync(ComputerAsync):
    """A desktop for models of Anthropic."""

    @property
    def tool(self) -> dict[str, Any]:
        """The tool computer_20251124, for `client.beta.messages.create(betas=["computer-use-2025-11-24"])`.

        {"type": "computer_toolset_20260801"} does as well where a model has that: `reply` takes its calls, too.
        """
        width, height = self._seen()
        size = {"display_width_px": width, "display_height_px": height}
        return {"type": "computer_20251124", "name": "computer", **size, "enable_zoom": True}

    async def _reply(self, call: Values, *, acknowledge: bool) -> list[dict[str, Any]]:
        del acknowledge
        if call.get("type") != "tool_use" or not isinstance(call.get("input"), Mapping):
            raise InvalidArgument(f"a call of Anthropic's computer tool is a tool_use block, not {call!r}")
        action = dict(call["input"])
        if call.get("name") != "computer":
            # A member of the toolset, which is named by the block.
            action["action"] = call.get("name")
        return [write_reply("anthropic", str(call.get("id")), await self._run(action))]

    async def _run(self, action: dict[str, Any]) -> ToolResult:
        kind, repeat = action.get("action"), int(action.pop("repeat", None) or 1)
        if kind == "key" and isinstance(action.get("text"), str):
            action["text"] = " ".join([action["text"]] * repeat)
        if kind in _LOOKS:
            return self._with_factor(await self._shot(settled=True))
        if kind == "zoom" and len(action.get("region") or ()) == 4:
            return await self._shot(self._on_screen(action)["region"], settled=True)
        result = await self._act(action)
        if result.is_error or result.images:
            return result
        if kind in _POSITIONS:
            at = {name: round(side * self.scale) for name, side in (result.structured or {}).items()}
            return ToolResult({"content": [{"type": "text", "text": json.dumps(at)}]})
        return self._with_factor(await self._shot())

    def _with_factor(self, shot: ToolResult) -> ToolResult:
        if self.scale == 1 or shot.is_error:
            return shot
        return ToolResult({"content": [{"type": "text", "text": self._factor()}, *shot.content]})


class OpenAIComputerAsync(ComputerAsync):
    """A desktop for models of OpenAI."""

    @property
    def tool(self) -> dict[str, Any]:
        """The tool `computer` of the Responses API."""
        return {"type": "computer"}

    async def _reply(self, call: Values, *, acknowledge: bool) -> list[dict[str, Any]]:
        actions = call.get("actions") or ([call["action"]] if call.get("action") else [])
        if call.get("type") != "computer_call" or not actions:
            raise InvalidArgument(f"a call of OpenAI's computer tool is a computer_call with actions, not {call!r}")
        checks = [_plain(check) for check in call.get("pending_safety_checks") or ()]
        if checks and not acknowledge:
            said = "; ".join(str(check.get("message") or check.get("code") or check.get("id")) for check in checks)
            message = f"the model's call waits for a person: {said}. Pass acknowledge=True once one has agreed"
            raise WrongState(message, {"state": "PENDING_SAFETY_CHECK"})
        failed = ""
        for number, each in enumerate(actions, 1):
            result = await self._act(_plain(each))
            if result.is_error:
                failed = f"Action {number} of {len(actions)} ({_plain(each).get('type')}) failed: {result.text.strip()}"
                break
        return await self._output(str(call.get("call_id")), checks, failed)

    async def _output(self, call_id: str, checks: list[dict[str, Any]], failed: str) -> list[dict[str, Any]]:
        shot = await self._shot()
        if not shot.images:
            raise WrongState(shot.text.strip(), {"state": "DESKTOP", "tool": "computer"})
        block = next(block for block in shot.content if block.get("type") == "image")
        screenshot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{block['data']}"}
        output: dict[str, Any] = {"type": "computer_call_output", "call_id": call_id, "output": screenshot}
        if checks:
            output["acknowledged_safety_checks"] = checks
        said = " ".join(filter(None, (failed, self._factor() if failed and self.scale != 1 else "")))
        return [output, *([{"role": "user", "content": said}] if said else [])]


class Computer(Facade):
    """A desktop for a model: `tool` is declared to it, and its calls are carried out by `reply`."""

    def __init__(self, twin: ComputerAsync) -> None:
        self.twin: ComputerAsync = twin

    @property
    def tool(self) -> dict[str, Any]:
        """The tool as the vendor's API takes it."""
        return self.twin.tool

    @property
    def scale(self) -> float:
        """The size of the images that the model sees, as a share of the screen's."""
        return self.twin.scale

    reply = blocking(ComputerAsync.reply)


def computer_of(vendor: str) -> type[ComputerAsync]:
    """Return the class of a vendor.

    Raises:
        InvalidArgument: There is none.
    """
    classes = {"anthropic": AnthropicComputerAsync, "openai": OpenAIComputerAsync}
    if vendor not in classes:
        message = f"{vendor!r} is not a vendor of computer tools: choose {' or '.join(classes)}"
        raise InvalidArgument(message, {"argument": "vendor"})
    return classes[vendor]


def _plain(value: object) -> dict[str, Any]:
    """Return an object of a model's client as a dict, without what is not set."""
    dump = getattr(value, "model_dump", None)
    found: object = dump(exclude_none=True) if callable(dump) else value
    if not isinstance(found, Mapping):
        raise InvalidArgument(f"a call of a model is an object or a mapping, not {value!r}")
    return {str(name): each for name, each in cast("Mapping[object, Any]", found).items()}

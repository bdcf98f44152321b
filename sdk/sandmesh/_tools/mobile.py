"""Tools on the Android device of a sandbox, with the names and parameters of AgentScope Runtime's."""

from __future__ import annotations

from typing import Annotated, Literal

from sandmesh._tools.declaration import Param, Tool, tool

Point = list[float] | tuple[float, float]
Milliseconds = Annotated[int | None, Param("Milliseconds; none: 300.", ge=1, le=60_000)]
Key = Annotated[int | str, Param('A number of Android\'s key codes, or a name, like 3, "HOME" or "KEYCODE_BACK".')]
Action = Literal["get_screen_resolution", "tap", "swipe", "input_text", "key_event", "get_screenshot"]


@tool("mobile")
class AdbUse(Tool):
    """Use the touch screen and the keys of the sandbox's Android device.

    * get_screen_resolution: return the width and the height of the screen in pixels
    * tap: at `coordinate`
    * swipe: from `start` to `end` in `duration` milliseconds
    * input_text: type `text` where the focus is
    * key_event: press the key `code`, like 3, "HOME" or "BACK"
    * get_screenshot: return an image of the screen
    """

    action: Action
    coordinate: Annotated[Point | None, Param("x and y in pixels, from the top left corner.")] = None
    start: Annotated[Point | None, Param("Likewise.")] = None
    end: Annotated[Point | None, Param("Likewise.")] = None
    duration: Milliseconds = None
    code: Annotated[int | str | None, Param("A key's number or name.")] = None
    text: Annotated[str | None, Param("What is typed.", max_length=10_000)] = None


@tool("device")
class Adb(AdbUse):
    """Use the sandbox's Android device, under the name that older clients call."""


@tool("mobile")
class MobileGetScreenResolution(Tool):
    """Return the width and the height of the device's screen in pixels."""


@tool("mobile")
class MobileTap(Tool):
    """Tap the device's screen, at a coordinate [x, y] or at x and y."""

    coordinate: Annotated[Point | float | None, Param("x and y in pixels, from the top left corner; or only x.")] = None
    y: Annotated[float | None, Param("Where `coordinate` is not both.")] = None
    x: Annotated[float | None, Param("Where there is no `coordinate`.")] = None


@tool("mobile")
class MobileSwipe(Tool):
    """Swipe over the device's screen."""

    start: Annotated[Point, Param("x and y in pixels, from the top left corner.")]
    end: Annotated[Point, Param("Likewise.")]
    duration: Milliseconds = None


@tool("mobile")
class MobileInputText(Tool):
    """Type a text on the device where the focus is."""

    text: Annotated[str, Param("In any script where the device has ADBKeyboard, else ASCII.", max_length=10_000)]


@tool("mobile")
class MobileKeyEvent(Tool):
    """Press a key of the device."""

    code: Key


@tool("mobile")
class MobileGetScreenshot(Tool):
    """Take an image of the device's screen."""

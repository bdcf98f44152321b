"""Tools on the screen of a sandbox with a desktop: what models call, and what is behind `box.desktop`.

`computer_use` has the actions of AgentScope Runtime's tool and those of computer-use models of Anthropic and OpenAI.
"""

from __future__ import annotations

from typing import Annotated, Literal

from sandmesh._tools.declaration import Param, Tool, tool

Action = Literal[
    "key",
    "type",
    "get_cursor_position",
    "cursor_position",
    "mouse_move",
    "left_click",
    "left_click_drag",
    "right_click",
    "middle_click",
    "double_click",
    "triple_click",
    "back_click",
    "forward_click",
    "left_mouse_down",
    "left_mouse_up",
    "scroll",
    "hold_key",
    "wait",
    "get_screenshot",
    "screenshot",
    "zoom",
]
Point = Annotated[list[float] | tuple[float, float] | None, Param("x and y in pixels, from the top left corner.")]
Region = Annotated[list[int] | None, Param("Left, top, right and bottom in pixels; none: the whole screen.")]
Side = Annotated[int, Param("Pixels.", ge=200, le=4096)]


@tool("computer-use")
class ComputerUse(Tool):
    """Use the mouse, the keyboard and the screen of the sandbox's desktop.

    * key: press a key or a combination in `text`, like "Return", "ctrl+s", "alt+Tab"
    * type: type `text` as it is, in any script
    * cursor_position: return the position of the mouse
    * mouse_move, left_click, right_click, middle_click, double_click, triple_click, back_click, forward_click: at
      `coordinate`, clicks by default where the mouse is; `text` has keys that are held meanwhile, like "ctrl"
    * left_click_drag: from `start_coordinate`, by default where the mouse is, to `coordinate`
    * left_mouse_down, left_mouse_up: press or release the button where the mouse is
    * scroll: turn the wheel by `scroll_amount` steps in `scroll_direction`, at `coordinate`
    * hold_key: hold the keys in `text` for `duration` seconds
    * wait: wait for `duration` seconds
    * screenshot: return an image of the screen; zoom: of only its `region`
    """

    action: Action
    coordinate: Point = None
    text: Annotated[str | None, Param("Keys or text, as the action takes it.", max_length=100_000)] = None
    start_coordinate: Point = None
    scroll_direction: Literal["up", "down", "left", "right"] | None = None
    scroll_amount: Annotated[int, Param("Steps of the wheel.", ge=1, le=100)] = 3
    duration: Annotated[float, Param("Seconds.", ge=0, le=300)] = 1.0
    region: Region = None


@tool("desktop")
class TakeScreenshot(Tool):
    """Take an image of the screen, or of a region of it."""

    region: Region = None
    scale: Annotated[float, Param("The factor of its size.", gt=0, le=4)] = 1.0
    format: Literal["png", "jpeg", "webp"] = "png"


@tool("desktop")
class GetScreen(Tool):
    """Return the size of the screen, the position of the mouse and the parts of the desktop that run."""


@tool("desktop")
class ListWindows(Tool):
    """List the windows."""


@tool("desktop")
class FocusWindow(Tool):
    """Raise a window and send what is typed to it."""

    window_id: Annotated[str, Param("As the list has it.", pattern=r"^0x[0-9a-f]{1,16}$")]


@tool("desktop")
class LaunchProgram(Tool):
    """Start a program on the desktop; it goes on by itself."""

    command: Annotated[list[str], Param("The program and its arguments.", min_length=1)]


@tool("desktop")
class GetClipboard(Tool):
    """Return the text of the clipboard."""


@tool("desktop")
class SetClipboard(Tool):
    """Replace the text of the clipboard."""

    text: Annotated[str, Param("The text.", max_length=100_000)]


@tool("desktop")
class ResizeScreen(Tool):
    """Change the size of the screen while programs run."""

    width: Side
    height: Side


@tool("desktop")
class SetKeyboardLayout(Tool):
    """Change the layout of the keyboard."""

    layout: Annotated[str, Param("As X names it, like us, de or ru.", pattern=r"^[a-z]{2,12}$")]
    variant: Annotated[str, Param("Of the layout, like dvorak.", pattern=r"^[A-Za-z0-9_-]{0,40}$")] = ""


@tool("desktop")
class StartRecording(Tool):
    """Record to a new folder of the workspace: a video of the screen, and a trace of the calls with pictures."""

    folder: Annotated[str, Param("Below the workspace; by default one in recordings.", max_length=1000)] = ""
    video: Literal["mp4", "webm", "none"] = "mp4"
    fps: Annotated[int, Param("Frames a second.", ge=1, le=30)] = 10
    max_seconds: Annotated[float, Param("After which the video ends.", gt=0, le=86_400)] = 3600.0
    max_bytes: Annotated[int, Param("Of video and trace.", ge=4 << 20, le=16 << 30)] = 256 << 20


@tool("desktop")
class StopRecording(Tool):
    """End the recording, and return what it has."""

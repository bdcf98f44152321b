"""A sandbox with a desktop: its screen, mouse, keyboard, windows and clipboard, and what happens when a part dies."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import FilesystemSandboxAsync, GuiSandboxAsync, errors
from sandmesh.sandbox.screen.desktop import Window
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.needs("desktop"), pytest.mark.asyncio(loop_scope="module")]

TEXT = "Hello, zażółć 你好 ✓ Ω ~#{}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncGenerator[str]:
    """Run a mesh and yield its address."""
    async with run_mesh() as mesh:
        yield mesh.addresses[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(address: str) -> AsyncGenerator[GuiSandboxAsync]:
    """Run a sandbox that has a desktop."""
    async with GuiSandboxAsync(base_url=address, timeout=60) as running:
        yield running


def size_of(image: bytes) -> tuple[int, int]:
    """Return the size of a PNG."""
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    return width, height


async def opened(box: FilesystemSandboxAsync, title: str) -> Window:
    """Wait for a window."""
    async with asyncio.timeout(30):
        while True:
            for window in await box.desktop.windows():
                if window.title == title:
                    return window


async def contents(box: FilesystemSandboxAsync, path: str, wanted: str) -> str:
    """Read a file of the workspace until it has a text."""
    async with asyncio.timeout(30):
        while wanted not in (found := (await box.run_shell_command(f"cat {path} 2>/dev/null; true")).text):
            pass
    return found


async def test_a_desktop_that_nobody_uses_does_not_run(address: str) -> None:
    async with GuiSandboxAsync(base_url=address, timeout=60) as other:
        listed = (await other.run_shell_command("ls /proc/*/exe -l 2>/dev/null")).text
        assert "Xtigervnc" not in listed
        assert (await other.desktop.info()).parts == {"Xtigervnc": True, "openbox": True, "tint2": True}


async def test_a_screenshot_is_an_image_of_the_screen_a_region_or_a_scale(box: GuiSandboxAsync) -> None:
    result = await box.computer_use("get_screenshot")
    assert result.content[0]["mimeType"] == "image/png"
    info = await box.desktop.info()
    assert size_of(result.images[0]) == (info.width, info.height)
    assert size_of(await box.desktop.screenshot((10, 20, 110, 70))) == (100, 50)
    assert size_of(await box.desktop.screenshot((0, 0, 100, 50), scale=2)) == (200, 100)
    assert (await box.desktop.screenshot(format="jpeg")).startswith(b"\xff\xd8")
    assert size_of((await box.computer_use("zoom", region=[0, 0, 64, 32])).images[0]) == (64, 32)


async def test_the_mouse_goes_where_it_is_sent_in_all_three_forms(box: GuiSandboxAsync) -> None:
    assert (await box.computer_use("mouse_move", [100, 120])).structured == {"ok": True}
    assert json.loads((await box.computer_use("get_cursor_position")).text) == {"x": 100, "y": 120}
    await box.desktop.act({"action": "mouse_move", "coordinate": [30, 40]})
    assert (await box.desktop.info()).cursor == (30, 40)
    await box.desktop.act({"type": "drag", "path": [{"x": 50, "y": 60}, {"x": 70, "y": 80}, {"x": 90, "y": 95}]})
    assert (await box.desktop.info()).cursor == (90, 95)


async def test_text_in_any_script_and_keys_arrive_as_typed(box: GuiSandboxAsync) -> None:
    await box.desktop.launch("xterm", "-T", "writer", "-e", "cat > typed")
    await box.desktop.focus(await opened(box, "writer"))
    await box.computer_use("type", text=TEXT)
    await box.desktop.act({"type": "keypress", "keys": ["ENTER"]})
    await box.computer_use("key", text="ctrl+d")
    assert await contents(box, "typed", "\n") == TEXT + "\n"


async def test_text_arrives_as_typed_in_every_layout_of_the_keyboard(box: GuiSandboxAsync) -> None:
    await box.desktop.launch("xterm", "-T", "layouts", "-e", "cat > laid")
    await box.desktop.focus(await opened(box, "layouts"))
    line = f"{TEXT} yz @[]\n"
    for number, (layout, variant) in enumerate((("de", ""), ("ru", ""), ("us", "dvorak"), ("us", "")), 1):
        await box.desktop.set_layout(layout, variant)
        await box.desktop.type(line)
        assert await contents(box, "laid", line * number) == line * number, layout
    await box.computer_use("key", text="ctrl+d")
    with pytest.raises(errors.WrongState, match="There is no keyboard layout zz"):
        await box.desktop.set_layout("zz")


async def test_text_in_chinese_japanese_and_korean_is_drawn(box: GuiSandboxAsync) -> None:
    texts = ("你", "好", "ひ", "한")
    for number, text in enumerate(texts):
        place = f"10x2+{200 * number}+400"
        what = ("-T", f"t{number}", "-e", f"printf {text}; sleep 600")
        await box.desktop.launch("xterm", "-fa", "Monospace", "-geometry", place, *what)
    # Below the frames, at whose corners the windows were to be.
    regions: list[tuple[int, int, int, int]] = []
    async with asyncio.timeout(30):
        while [(x // 10, 415 <= y < 430) for x, y, *_ in regions] != [(0, True), (20, True), (40, True), (60, True)]:
            regions = [(await opened(box, f"t{number}")).region for number in range(len(texts))]
        # Windows that show nothing yet, or a box in place of what no font has, are alike.
        while len({await box.desktop.screenshot(region) for region in regions}) < len(texts):
            pass
    await box.run_shell_command("pkill xterm")


async def test_clicks_scrolls_and_held_keys_reach_the_window_below_the_mouse(box: GuiSandboxAsync) -> None:
    program = "xev -name target -geometry 300x200+20+20 > events"
    await box.desktop.launch("sh", "-c", f"exec stdbuf -oL {program}")
    target = await opened(box, "target")
    x, y = target.region[0] + 60, target.region[1] + 60
    await box.computer_use("left_click", [x, y], text="ctrl")
    await box.computer_use("triple_click", [x, y])
    await box.computer_use("right_click", [x, y])
    await box.desktop.act({"type": "scroll", "x": x, "y": y, "scroll_x": 0, "scroll_y": 300})
    await box.desktop.act({"action": "scroll", "coordinate": [x, y], "scroll_direction": "up", "scroll_amount": 1})
    await box.computer_use("hold_key", text="shift", duration=0.05)
    found = await contents(box, "events", "Shift_L")
    presses = [line for line in found.split("\n\n") if "ButtonPress" in line]
    assert [line.split("button ")[1][0] for line in presses] == ["1", "1", "1", "1", "3", "5", "5", "5", "4"]
    assert "state 0x4, button 1" in presses[0]


async def test_the_clipboard_keeps_text_of_any_script(box: GuiSandboxAsync) -> None:
    await box.desktop.set_clipboard(TEXT)
    assert await box.desktop.get_clipboard() == TEXT


async def test_the_screen_changes_its_size_while_programs_run(box: GuiSandboxAsync) -> None:
    pid = await box.desktop.launch("xterm", "-T", "stays")
    await opened(box, "stays")
    for width, height in ((3840, 2160), (1280, 720), (1024, 768)):
        await box.desktop.resize(width, height)
        assert size_of(await box.desktop.screenshot()) == (width, height)
    assert pid in {window.pid for window in await box.desktop.windows()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "left_click", "coordinate": [5000, 1]}, "(5000, 1) is outside of the screen, which is 1024x768"),
        ({"action": "mouse_move", "coordinate": [1, -1]}, "(1, -1) is outside of the screen"),
        ({"action": "mouse_move"}, "mouse_move needs a coordinate"),
        ({"action": "mouse_move", "coordinate": [1]}, "must be two numbers"),
        ({"action": "key", "text": "Foobar"}, "There is no key 'Foobar'"),
        ({"action": "key"}, "key needs a text"),
        ({"action": "scroll", "coordinate": [1, 1]}, "scroll needs a scroll_direction"),
        ({"action": "zoom", "region": [10, 10, 5, 5]}, "is empty or outside: the screen is 1024x768"),
        ({"action": "zoom"}, "zoom needs a region"),
    ],
)
async def test_a_mistake_is_a_result_that_names_the_value_and_the_screen(
    box: GuiSandboxAsync, arguments: dict[str, object], message: str
) -> None:
    result = await box.call_tool("computer_use", arguments)
    assert result.is_error
    assert message in result.text


async def test_mistakes_of_programs_are_errors_that_say_what_to_do(box: GuiSandboxAsync) -> None:
    with pytest.raises(errors.WrongState, match="there is no program nothing-like-it"):
        await box.desktop.launch("nothing-like-it")
    with pytest.raises(errors.WrongState, match="There is no window 0x99; the windows are: "):
        await box.desktop.focus("0x99")
    for width, height, wrong in ((1024, 0, "height"), (-1, 768, "width"), (199, 768, "width"), (1024, 4097, "height")):
        with pytest.raises(errors.InvalidArgument, match=wrong):
            await box.desktop.resize(width, height)
    with pytest.raises(errors.InvalidArgument, match="action"):
        await box.computer_use("fly")  # type: ignore[arg-type]  # what a model may write
    with pytest.raises(errors.InvalidArgument, match="OpenAI"):
        await box.desktop.act({"type": "fly"})
    with pytest.raises(errors.InvalidArgument, match="lacks a value"):
        await box.desktop.act({"type": "click", "x": 1})


@pytest.mark.parametrize("part", ["Xtigervnc", "openbox", "tint2"])
async def test_a_part_that_was_killed_is_started_again_and_the_next_call_says_so(
    box: GuiSandboxAsync, part: str
) -> None:
    await box.desktop.info()
    await box.run_shell_command(f"pkill -9 -x {part}; while pgrep -x {part}; do :; done")
    async with asyncio.timeout(30):
        while "the desktop was started again" not in (result := await box.computer_use("screenshot")).text:
            assert not result.is_error or "failed" in result.text
    assert f"({part}) ended with signal 9" in result.text
    assert all((await box.desktop.info()).parts.values())
    await box.desktop.type("ź")


async def test_a_filesystem_sandbox_has_the_desktop_of_its_template(address: str) -> None:
    async with FilesystemSandboxAsync(base_url=address, template="desktop", timeout=60) as box:
        parts = (await box.desktop.info()).parts
        assert set(parts) >= {"Xtigervnc", "dbus-daemon", "xfwm4", "xfce4-panel", "xfdesktop"}
        assert all(parts.values())
        await box.desktop.launch("xfce4-terminal", "-T", "writer", "-x", "sh", "-c", "cat > typed")
        await box.desktop.focus(await opened(box, "writer"))
        await box.desktop.type("Grüße\n")
        await box.desktop.act({"action": "key", "text": "ctrl+d"})
        assert await contents(box, "typed", "\n") == "Grüße\n"
        await box.run_shell_command("pkill -9 -x xfwm4; while pgrep -x xfwm4; do :; done")
        async with asyncio.timeout(30):
            while "the desktop was started again" not in (await box.desktop.act({"action": "screenshot"})).text:
                pass
        assert all((await box.desktop.info()).parts.values())


async def test_the_desktop_listens_on_no_port(box: GuiSandboxAsync) -> None:
    await box.desktop.info()
    listening = await box.run_shell_command("awk '$4 == \"0A\" {print $2}' /proc/net/tcp /proc/net/tcp6")
    egress = {line.rpartition(":")[2] for line in listening.text.split()}
    assert egress <= {f"{3128:04X}"}

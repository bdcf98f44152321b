"""Loops of computer-use models as users write them: real clients of the vendors, whose answers are scripted.

The model orders tea in a shop, in a browser on the sandbox's desktop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from sandmesh import GuiSandbox, GuiSandboxAsync, errors
from tests.mesh.conftest import run_mesh

pytestmark = [
    pytest.mark.needs("desktop"),
    pytest.mark.needs("chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

CHROMIUM = ("/usr/lib/chromium/chromium", "--no-sandbox", "--no-first-run", "--user-data-dir=/tmp/shop", "--kiosk")
LINK = "http://localhost:8000/"
PROMPT = "Order tea."
DONE = "It is ordered."

ANTHROPIC: list[dict[str, Any]] = [
    {"action": "screenshot"},
    {"action": "left_click", "coordinate": [200, 130]},
    {"action": "zoom", "region": [0, 380, 512, 480]},
    {"action": "left_click", "coordinate": [2000, 130]},
    {"action": "left_click", "coordinate": [300, 220]},
    {"action": "type", "text": "Zoë 你好"},
    {"action": "key", "text": "Tab"},
    {"action": "key", "text": "Right", "repeat": 4},
    {"action": "cursor_position"},
    {"action": "scroll", "coordinate": [700, 500], "scroll_direction": "down", "scroll_amount": 30},
    {"action": "wait", "duration": 1},
    # The page ends 768 pixels above its end: what is 1,500 pixels down is 268 below the top now.
    {"action": "left_click", "coordinate": [200, 298]},
]
OPENAI: list[list[dict[str, Any]]] = [
    [{"type": "screenshot"}],
    [{"type": "double_click", "x": 500, "y": 130}, {"type": "click", "x": 300, "y": 220, "button": "left"}],
    [{"type": "type", "text": "Zoë 你好"}, {"type": "keypress", "keys": ["SHIFT", "TAB"]}],
    [{"type": "drag", "path": [{"x": 110, "y": 320}, {"x": 300, "y": 320}, {"x": 495, "y": 320}]}],
    [
        {"type": "move", "x": 700, "y": 500},
        {"type": "click", "x": 5, "y": 9000, "button": "left"},
        {"type": "screenshot"},
    ],
    [{"type": "scroll", "x": 700, "y": 500, "scroll_x": 0, "scroll_y": 3000}, {"type": "wait"}],
    [{"type": "click", "x": 200, "y": 298, "button": "left"}],
]


class Model:
    """A model's API, which answers each request with the next call of a script, and then with a text."""

    def __init__(self, calls: Sequence[Any]) -> None:
        self._calls = list(calls)
        self.requests: list[dict[str, Any]] = []

    async def anthropic(self, request: web.Request) -> web.Response:
        """Answer as Anthropic's Messages API."""
        number = await self._number(request)
        block: dict[str, Any] = {"type": "text", "text": DONE}
        if number < len(self._calls):
            block = {"type": "tool_use", "id": f"t{number}", "name": "computer", "input": self._calls[number]}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": [block]}
        usage = {"input_tokens": 1, "output_tokens": 1}
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        return web.json_response({**message, "stop_reason": stop, "stop_sequence": None, "usage": usage})

    async def openai(self, request: web.Request) -> web.Response:
        """Answer as OpenAI's Responses API."""
        number = await self._number(request)
        text: dict[str, Any] = {"type": "output_text", "text": DONE, "annotations": []}
        item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "content": [text]}
        if number < len(self._calls):
            checks = [{"id": "c1", "code": "odd", "message": "It orders."}] if number == len(self._calls) - 1 else []
            item = {
                "type": "computer_call",
                "id": f"i{number}",
                "call_id": f"c{number}",
                "pending_safety_checks": checks,
            }
            item["actions"] = self._calls[number]
        response: dict[str, Any] = {"id": "r", "object": "response", "created_at": 0, "model": "scripted", "tools": []}
        rest = {"parallel_tool_calls": False, "tool_choice": "auto"}
        return web.json_response({**response, **rest, "output": [{**item, "status": "completed"}]})

    async def _number(self, request: web.Request) -> int:
        self.requests.append(await request.json())
        return len(self.requests) - 1

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serve on a port of the loopback."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/messages", self.anthropic)
        app.router.add_post("/v1/responses", self.openai)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncGenerator[str]:
    """Run a mesh and yield its address."""
    async with run_mesh() as mesh:
        yield mesh.addresses[0]


@asynccontextmanager
async def shop(address: str) -> AsyncGenerator[GuiSandboxAsync]:
    """Run a sandbox whose desktop shows the shop."""
    async with asyncio.timeout(120), GuiSandboxAsync(base_url=address, timeout=60) as box:
        await box.fs.write("tea_shop.py", Path(__file__).with_name("tea_shop.py").read_bytes())
        server = await box.processes.start("python3 tea_shop.py 8000")
        await server.wait_for_port(8000)
        await box.desktop.launch(*CHROMIUM, LINK)
        await shown(box, "Tea shop")
        yield box


async def shown(box: GuiSandboxAsync, title: str) -> None:
    """Wait for a page."""
    while not any(title in window.title for window in await box.desktop.windows()):
        pass


async def ordered(box: GuiSandboxAsync) -> dict[str, Any]:
    """Return what the shop was sent."""
    await shown(box, "Thank you")
    return dict(json.loads(await box.fs.read("order.json")))


def size_of(encoded: str) -> tuple[int, int]:
    """Return the size of a PNG in base64."""
    image = base64.b64decode(encoded)
    assert image.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", image[16:24])
    return width, height


async def test_a_model_of_anthropic_orders_tea(address: str) -> None:
    model = Model(ANTHROPIC)
    async with (
        shop(address) as box,
        model.serving() as url,
        AsyncAnthropic(base_url=url, api_key="none") as client,
    ):
        computer = await box.desktop.computer("anthropic")
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            answer = await client.beta.messages.create(
                model="claude-opus-4-8",
                max_tokens=1024,
                messages=messages,
                tools=[computer.tool],  # type: ignore[list-item]  # as the API takes it
                betas=["computer-use-2025-11-24"],
            )
            messages.append({"role": "assistant", "content": answer.content})
            replies = [
                each for block in answer.content if block.type == "tool_use" for each in await computer.reply(block)
            ]
            if not replies:
                break
            messages.append({"role": "user", "content": replies})
        assert await ordered(box) == {"tea": "green", "name": "Zoë 你好", "count": 5}
    declared = {"display_width_px": 1024, "display_height_px": 768, "enable_zoom": True}
    assert model.requests[0]["tools"] == [{"type": "computer_20251124", "name": "computer", **declared}]
    results = [request["messages"][-1]["content"][0] for request in model.requests[1:]]
    assert [each["tool_use_id"] for each in results] == [f"t{number}" for number in range(len(ANTHROPIC))]
    wrong = results[3]
    assert wrong["is_error"]
    assert "(2000, 130) is outside of the screen, which is 1024x768" in wrong["content"][0]["text"]
    assert json.loads(results[8]["content"][0]["text"]) == {"x": 300, "y": 220}
    images = {number: one["content"][0]["source"]["data"] for number, one in enumerate(results) if number not in (3, 8)}
    assert {number: size_of(image) for number, image in images.items() if number != 2} == dict.fromkeys(
        set(images) - {2}, (1024, 768)
    )
    # It fills what the model can see.
    assert size_of(images[2]) == (1024, 200)


async def test_a_model_of_openai_orders_tea(address: str) -> None:
    model = Model(OPENAI)
    async with (
        shop(address) as box,
        model.serving() as url,
        AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client,
    ):
        computer = await box.desktop.computer("openai")
        items: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            response = await client.responses.create(model="gpt-5.4", input=items, tools=[computer.tool])  # type: ignore[list-item]  # as above
            items += [item.model_dump(exclude_none=True) for item in response.output]
            calls = [item for item in response.output if item.type == "computer_call"]
            if not calls:
                break
            for call in calls:
                if call.pending_safety_checks:
                    with pytest.raises(errors.WrongState, match="waits for a person: It orders"):
                        await computer.reply(call)
                items += await computer.reply(call, acknowledge=True)
        assert await ordered(box) == {"tea": "strong black", "name": "Zoë 你好", "count": 9}
    assert model.requests[0]["tools"] == [{"type": "computer"}]
    outputs = [item for item in model.requests[-1]["input"] if item.get("type") == "computer_call_output"]
    assert [each["call_id"] for each in outputs] == [f"c{number}" for number in range(len(OPENAI))]
    for each in outputs:
        assert size_of(each["output"]["image_url"].removeprefix("data:image/png;base64,")) == (1024, 768)
    assert outputs[-1]["acknowledged_safety_checks"] == [{"id": "c1", "code": "odd", "message": "It orders."}]
    told = [item["content"] for item in model.requests[-1]["input"] if item.get("role") == "user"][1:]
    assert told == [
        "Action 2 of 3 (click) failed: left_click: coordinate (5, 9000) is outside of the screen, which is 1024x768."
    ]


async def test_a_screen_larger_than_models_see_is_shown_smaller_and_coordinates_are_converted(address: str) -> None:
    async with GuiSandboxAsync(base_url=address, timeout=60) as box:
        await box.desktop.resize(2560, 1440)
        computer = await box.desktop.computer("anthropic")
        size = (computer.tool["display_width_px"], computer.tool["display_height_px"])
        assert size == (1430, 804)
        click = {"type": "tool_use", "id": "1", "name": "left_click", "input": {"coordinate": [715, 402]}}
        (reply,) = await computer.reply({**click, "toolset_name": "computer"})
        assert "The screen is 2560x1440: the image has 0.559 times its size" in reply["content"][0]["text"]
        assert size_of(reply["content"][1]["source"]["data"]) == size
        assert (await box.desktop.info()).cursor == (1280, 720)
        where = {"type": "tool_use", "id": "2", "name": "computer", "input": {"action": "cursor_position"}}
        (reply,) = await computer.reply(where)
        assert json.loads(reply["content"][0]["text"]) == {"x": 715, "y": 402}


async def test_what_is_no_call_and_what_the_model_did_wrong_are_told_apart(address: str) -> None:
    def use() -> None:
        with GuiSandbox(base_url=address, timeout=60) as box:
            computer = box.desktop.computer("anthropic")
            assert computer.scale == 1
            with pytest.raises(errors.InvalidArgument, match="tool_use block"):
                computer.reply({"type": "computer_call"})
            (reply,) = computer.reply({"type": "tool_use", "id": "1", "name": "computer", "input": {"action": "fly"}})
            assert reply["is_error"]
            assert "action: Input should be 'key', 'type'" in reply["content"][0]["text"]
            openai = box.desktop.computer("openai")
            with pytest.raises(errors.InvalidArgument, match="computer_call"):
                openai.reply({"type": "tool_use"})
            with pytest.raises(errors.InvalidArgument, match="choose anthropic or openai"):
                box.desktop.computer("other")  # type: ignore[arg-type]  # what a program may write

    await asyncio.to_thread(use)

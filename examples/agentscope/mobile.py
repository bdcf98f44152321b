"""An Android device by AgentScope Runtime's own package, at the door of a mesh that has one."""

import asyncio
import os
import sys

from agentscope_runtime.sandbox import MobileSandbox, MobileSandboxAsync

mesh = {"base_url": os.environ["BASE_URL"], "bearer_token": os.environ["BEARER_TOKEN"]}


def text_of(result) -> str:
    """Return the text of a tool's result."""
    assert result["isError"] is False, result
    return result["content"][0].get("text", "")


with MobileSandbox(**mesh) as box:
    assert "width" in text_of(box.mobile_get_screen_resolution())
    assert "Tapped" in text_of(box.mobile_tap([10, 20]))
    assert "Swiped" in text_of(box.mobile_swipe([10, 20], [30, 40]))
    assert "hello" in text_of(box.mobile_input_text("hello"))
    assert "key event" in text_of(box.mobile_key_event("HOME"))
    assert box.mobile_get_screenshot()["content"][0]["mimeType"] == "image/png"
    assert "width" in text_of(box.adb_use("get_screen_resolution"))
    print(box.mobile_url, flush=True)
    sys.stdin.readline()


async def use_async() -> None:
    """Do the same with an event loop."""
    async with MobileSandboxAsync(**mesh) as box:
        assert "width" in text_of(await box.mobile_get_screen_resolution())
        assert f"/desktop/{box.sandbox_id}/websockify/?password=" in await box.get_mobile_url_async()


asyncio.run(use_async())
print("every call answered")

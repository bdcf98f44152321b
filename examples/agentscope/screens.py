"""The addresses at which people watch sandboxes, by AgentScope Runtime's own SDK, from a mesh's door."""

import asyncio
import os
import sys

from agentscope_runtime.sandbox import BrowserSandbox, FilesystemSandbox, GuiSandbox, GuiSandboxAsync

mesh = {"base_url": os.environ["BASE_URL"], "bearer_token": os.environ["BEARER_TOKEN"]}


def shown(url: str) -> None:
    """Print an address, and wait until somebody has looked."""
    print(url, flush=True)
    sys.stdin.readline()


with GuiSandbox(**mesh) as box:
    assert box.computer_use("get_cursor_position")["isError"] is False
    url = box.desktop_url
    assert url == box.desktop_url
    shown(url)

with FilesystemSandbox(**mesh) as box:
    assert box.get_info()["sandbox_type"] == "filesystem"
    assert box.list_directory(".")["isError"] is False
    shown(box.desktop_url)

with BrowserSandbox(**mesh) as box:
    page = box.browser_navigate("about:blank")
    assert page["isError"] is False
    shown(box.desktop_url)


async def use_async() -> None:
    """Get the address with an event loop."""
    async with GuiSandboxAsync(**mesh) as box:
        url = await box.get_desktop_url_async()
        assert f"/desktop/{box.sandbox_id}/vnc/vnc_relay.html?password=" in url


asyncio.run(use_async())
print("every call answered")

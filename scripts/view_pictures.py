"""Take the pictures of docs/pictures: what people see who watch a browser and a desktop, one of them in control.

Run it as `python -m scripts.view_pictures`. It starts a mesh of its own, a sandbox of each type, and a Chromium outside
that opens the page of the gateway.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import AGENT, PERSON, viewing

from sandmesh import BrowserSandboxAsync, GuiSandboxAsync

PICTURES: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures"
SHOP: Final = """<!doctype html><title>Plum shop</title>
<style>
  body { font: 18px sans-serif; margin: 48px; color: #223 } h1 { color: #63b } label { display: block; margin: 16px 0 }
  input, button { font: inherit; padding: 8px 12px } button { background: #63b; color: white; border: 0 }
</style>
<h1>Plums, by post</h1><p>Fresh from the tree, on your table in two days.</p>
<form><label>Name <input name=name></label><label>Boxes <input name=boxes type=number value=2></label>
<button>Order</button></form>
"""


async def take_browser(address: str) -> None:
    """Show a form that the agent has filled."""
    async with BrowserSandboxAsync(base_url=address, timeout=120) as box:
        await box.fs.write("shop.html", SHOP)
        await box.browser_navigate("file:///workspace/shop.html")
        page = (await box.browser_snapshot()).text
        ref = page.partition('textbox "Name" [')[2].partition("ref=")[2].partition("]")[0]
        await box.browser_type("Name", ref, "Ada Lovelace")
        async with viewing(await box.browser.url()) as person:
            await person.do("await", AGENT)
            await person.sees_a_picture(1280, 720)
            await person.do("picture", str(PICTURES / "browser.png"))


async def take_desktop(address: str) -> None:
    """Show a terminal while a person is in control."""
    async with GuiSandboxAsync(base_url=address, timeout=120) as box:
        await box.desktop.launch("xterm", "-fa", "Monospace", "-fs", "14", "-geometry", "70x20+60+60")
        async with asyncio.timeout(60):
            while not any("tint2" not in window.title for window in await box.desktop.windows()):
                pass
        await box.computer_use("type", text="python3 -c 'print(6 * 7)' | tee answer; touch done\n")
        async with asyncio.timeout(60):
            while not await box.fs.exists("done"):
                pass
        async with viewing(await box.desktop.url()) as person:
            await person.sees_a_picture(1024, 768)
            await person.do("press", "Take over")
            await person.do("await", PERSON)
            await person.do("picture", str(PICTURES / "desktop.png"))


async def main() -> None:
    """Take both."""
    PICTURES.mkdir(exist_ok=True)
    async with run_mesh() as mesh:
        await take_browser(mesh.addresses[0])
        await take_desktop(mesh.addresses[0])


if __name__ == "__main__":
    asyncio.run(main())

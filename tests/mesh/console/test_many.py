"""The console with 10,000 sandboxes: what is drawn and sent stays bounded."""

from __future__ import annotations

import secrets
from typing import Any, cast

import pytest
from playwright.async_api import Page, async_playwright, expect
from redis.asyncio import Redis

from sandmesh import BaseSandboxAsync
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.facades.console.app import open_console
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.mesh.sweep import remove
from tests.mesh.console.person import CHROMIUM

pytestmark = pytest.mark.timeout(600)

MANY = 10_000
PAGE = 100
BATCH = 500
SLOW = 60_000
LARGEST_CHANGE = 64 << 10


async def multiply(settings: MeshSettings, sandbox_id: str) -> None:
    """Put records into the store that are like one, but for ids, labels and times, until there are so many."""
    prefix = f"sandmesh:{{{settings.mesh_id}}}"
    async with Redis(unix_socket_path=str(settings.paths.services / "r")) as store:
        commands = cast("Any", store)  # redis-py leaves results untyped
        one: dict[bytes, bytes] = await commands.hgetall(f"{prefix}:sandbox:{sandbox_id}")
        body = pb.Sandbox.FromString(one[b"body"])
        pipe = commands.pipeline(transaction=False)
        for number in range(MANY - 1):
            if number % BATCH == 0:
                await pipe.execute()
            made = f"{sandbox_id[:-5]}{number:05}"
            body.spec.labels["n"] = str(number)
            fields = {b"id": made.encode(), b"body": body.SerializeToString()}
            fields[b"created_us"] = str(int(one[b"created_us"]) - number * 1_000_000).encode()
            pipe.hset(f"{prefix}:sandbox:{made}", mapping=one | fields)
            pipe.zadd(f"{prefix}:ids", {made: 0})
        await pipe.execute()


async def rows(page: Page) -> int:
    """Return how many sandboxes are drawn."""
    return await page.locator("tbody tr").count()


async def test_ten_thousand_sandboxes_are_paged_filtered_sorted_and_changed() -> None:
    settings = MeshSettings.model_validate({"mesh_id": f"test-{secrets.token_hex(5)}"})
    try:
        async with (
            open_mesh(settings, lambda message, fraction: None) as mesh,
            open_console(mesh.addresses[0], "127.0.0.1:0") as console,
            BaseSandboxAsync(base_url=mesh.addresses[0]) as box,
            async_playwright() as playwright,
            await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
        ):
            await multiply(settings, box.sandbox_id)
            page = await browser.new_page()
            sent: list[int] = []
            page.on("websocket", lambda socket: socket.on("framereceived", lambda data: sent.append(len(data))))
            await page.goto(console.link(None))
            await expect(page.get_by_text(f"Page 1 of {MANY // PAGE}, {MANY} sandboxes")).to_be_visible(timeout=SLOW)
            assert await rows(page) == PAGE
            await page.get_by_label("Filter").fill("n=7777")
            await expect(page.locator("tbody tr")).to_have_count(1)
            await page.get_by_label("Filter").fill("n=777")
            await expect(page.locator("tbody tr")).to_have_count(11)
            await page.get_by_label("Filter").fill("")
            heading = page.locator("thead").get_by_text("Sandbox")
            await heading.click()
            first = page.locator("tbody tr td a").first
            await expect(first).to_have_text(f"{box.sandbox_id[:-5]}00000", timeout=SLOW)
            await heading.click()
            await page.get_by_role("button", name="Next").click()
            await expect(page.get_by_text(f"Page 2 of {MANY // PAGE}")).to_be_visible()
            assert await rows(page) == PAGE
            # What changes is sent, not all of it again.
            before = sum(sent)
            async with BaseSandboxAsync(base_url=mesh.addresses[0], labels={"n": "new"}) as other:
                link = page.get_by_role("link", name=other.sandbox_id)
                await page.get_by_label("Filter").fill("n=new")
                await expect(link).to_be_visible(timeout=SLOW)
            await expect(link).to_be_hidden(timeout=SLOW)
            assert sum(sent) - before < LARGEST_CHANGE < before
    finally:
        await sweep_state(settings.paths)
        remove(settings.paths)

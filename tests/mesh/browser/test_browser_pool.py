"""Browsers from a pool, which run before anybody needs them."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.meshes import RunningMesh, pool_is_full

from sandmesh import BrowserSandboxAsync
from tests.mesh.conftest import MeshMaker

pytestmark = [pytest.mark.needs("user namespaces"), pytest.mark.needs("chromium")]

BROWSERS = "pgrep -c -f ^/usr/lib/chromium/; true"


async def test_the_browser_of_a_pooled_sandbox_starts_by_itself(make_mesh: MeshMaker) -> None:
    async with make_mesh(pools={"browser": 1}) as mesh, asyncio.timeout(120):
        await pool_is_full(RunningMesh(mesh.addresses[0], 0, "", in_docker=False), "browser", 1)
        async with BrowserSandboxAsync(base_url=mesh.addresses[0]) as box:
            while not int((await box.run_shell_command(BROWSERS)).text):
                pass
            # It is the one that the tools use.
            before = (await box.run_shell_command("pgrep -o -f ^/usr/lib/chromium/")).text
            assert not (await box.browser_navigate("about:blank")).is_error
            assert (await box.run_shell_command("pgrep -o -f ^/usr/lib/chromium/")).text == before


async def test_the_browser_of_other_sandboxes_waits_for_its_first_use(make_mesh: MeshMaker) -> None:
    async with make_mesh() as mesh, BrowserSandboxAsync(base_url=mesh.addresses[0]) as box:
        # Its agent has made all tools by then, and that of a pool would start the browser half a second later.
        await box.list_tools()
        await box.run_ipython_cell("import time; time.sleep(1)")
        assert (await box.run_shell_command(BROWSERS)).text.strip() == "0"

"""Cells that show too much, or what is gone: each ends with a clear result, and the kernel goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.replies import REPLY_CHARACTERS
from sandmeshd.mesh import Mesh

SLIDER = (
    "display({'text/plain': 'IntSlider(value=%d)',"
    " 'application/vnd.jupyter.widget-view+json': {'model_id': '%d', 'version_major': 2}}, raw=True)"
)
ENDLESS = {
    "one line after another": "while True: print('x' * 1000)",
    "one line": "import sys\nwhile True: sys.stdout.write('x' * 1000)",
    "of a program": "!yes",
    "of errors": "import sys\nwhile True: print('y' * 1000, file=sys.stderr)",
    "displays": "while True: display('z' * 1000)",
}


def cell(code: str, timeout: float) -> dict[str, Any]:
    """Build a model's call of a cell."""
    arguments = json.dumps({"code": code, "timeout": timeout})
    return {"id": "c1", "type": "function", "function": {"name": "run_ipython_cell", "arguments": arguments}}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS)
async def test_a_cell_that_prints_without_end_is_a_bounded_reply_that_says_how_it_ended(mesh: Mesh, code: str) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], limits={"memory": "512MiB"}) as box:
        content = (await (await box.as_tools("openai")).reply(cell(code, 1)))["content"]
        assert len(content) < REPLY_CHARACTERS + 1000
        assert ("ran out of time" in content, "characters left out" in content) == (True, True), content[-500:]
        assert (await box.run_ipython_cell("6 * 7")).text == "42"


async def test_html_larger_than_the_memory_ends_the_cell_and_the_next_one_runs(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], limits={"memory": "512MiB"}) as box:
        shown = await box.run_ipython_cell("from IPython.display import HTML; HTML('<b>' + 'x' * (1 << 30))")
        assert (shown.is_error, shown.fault, "memory" in shown.text) == (True, "limit", True), shown.text[:1_000]
        assert (await box.run_ipython_cell("6 * 7")).text == "42"
        noted = await box.run_ipython_cell("from IPython.display import HTML; HTML('<b>' + 'x' * (20 << 20))")
        assert "text/html form of 20,971,523 bytes was left out" in noted.text
        assert "result's forms" not in noted.text


async def test_a_display_whose_kernel_died_is_shown_by_the_next_one_as_new(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        shown = await box.run_ipython_cell(
            "handle = display('first', display_id='a')\nimport os; os.kill(os.getpid(), 9)"
        )
        assert (shown.is_error, shown.fault, "'first'" in shown.text) == (True, "task", True)
        assert "NameError" in (await box.run_ipython_cell("handle.update('second')")).text
        updated = await box.run_ipython_cell(
            "from IPython.display import update_display; update_display('third', display_id='a')"
        )
        assert (updated.is_error, updated.text) == (False, "'third'")


async def test_widgets_are_their_texts_each_once(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        shown = await box.run_ipython_cell("\n".join(SLIDER % (number, number) for number in range(3)))
        assert (shown.is_error, shown.text.count("IntSlider")) == (False, 3)
        assert "model_id" not in shown.text

"""The code interpreter's cells, contexts and results, as E2B's clients expect them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.mesh.doors.e2b.e2b_world import World, inside, open_world

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: World) -> str:
    """Make a user's key."""
    return await world.key("ada")


@pytest_asyncio.fixture(loop_scope="module")
async def headers(world: World, ada: str) -> dict[str, str]:
    """Make a sandbox; return the headers of requests to its code interpreter."""
    made = await world.create(ada, templateID="code-interpreter-v1")
    return inside(made, 49_999)


async def shown(world: World, headers: dict[str, str], code: str, **values: str) -> list[dict[str, Any]]:
    """Run a cell; return its results, outputs and errors."""
    status, lines = await world.send("POST", "/execute", headers, json={"code": code, **values})
    assert status == 200, lines
    found = [json.loads(line) for line in lines.splitlines()]
    return [line for line in found if line["type"] in ("result", "stdout", "stderr", "error")]


HOME = "/home/user"
NOT_YET = f"{HOME}/not/yet"
WHERE = {
    "import os; os.getcwd()": "python",
    "from pathlib import Path; str(Path('x').resolve().parent)": "python",
    "import subprocess; subprocess.run(['/bin/pwd', '-P'], capture_output=True, text=True).stdout.strip()": "python",
    "import os; os.path.realpath(os.path.expanduser('~'))": "python",
    "process.cwd()": "js",
    "process.cwd() as string": "ts",
}


async def test_cells_commands_and_terminals_begin_in_home_user_by_its_own_path(
    world: World, headers: dict[str, str]
) -> None:
    for code, language in WHERE.items():
        assert [one["text"] for one in await shown(world, headers, code, language=language)] == [HOME], code
    for code, language in (("%cd /tmp\n%cd", "python"), ("!pwd", "python"), ("cd /tmp; cd; pwd -P", "bash")):
        assert (await shown(world, headers, code, language=language))[-1]["text"].endswith(f"{HOME}\n"), code
    (refused,) = await shown(world, headers, "open('/home/beside', 'w')")
    assert (refused["type"], "Read-only file system" in refused["value"]) == ("error", True), refused
    written = "open('kept.txt', 'w').write('by its name'); open('/workspace/kept.txt').read()"
    assert [one["text"] for one in await shown(world, headers, written)] == ["by its name"]


async def test_contexts_of_python_and_javascript_are_there_from_the_start(
    world: World, headers: dict[str, str]
) -> None:
    first = [("default", "python", HOME), ("javascript", "javascript", HOME)]

    async def listed() -> list[tuple[str, str, str]]:
        _, found = await world.send("GET", "/contexts", headers)
        return [(one["id"], one["language"], one["cwd"]) for one in found]

    assert await listed() == first
    request = {"language": "python", "cwd": NOT_YET}
    status, context = await world.send("POST", "/contexts", headers, json=request)
    assert (status, await listed()) == (201, [*first, (context["id"], "python", NOT_YET)])
    code = "import os; os.getcwd()"
    assert (await shown(world, headers, code, context_id=context["id"]))[0]["text"] == NOT_YET
    assert (await shown(world, headers, "x = 6 * 7; x", context_id="javascript"))[0]["text"] == "42"
    assert (await shown(world, headers, "x", language="js"))[0]["text"] == "42"
    assert (await world.send("DELETE", "/contexts/javascript", headers))[0] == 204
    assert (await listed())[0] == first[0]
    assert "javascript" not in [name for name, _, _ in await listed()]
    assert (await world.send("DELETE", "/contexts/javascript", headers))[0] == 404
    status, found = await world.send("POST", "/contexts", headers, json={"cwd": "/etc/not/there"})
    assert (status, "The working directory cannot be entered" in found["message"]) == (400, True)


IMAGE = "from PIL import Image; picture = Image.new('RGB', (16, 16), 'red'); "
SHOWN: dict[str, list[set[str]]] = {
    IMAGE + "picture.show(); print(end='')": [{"png", "text"}],
    "picture": [{"png", "text"}],
    "picture.save('red.png')": [{"png", "text"}],
    "picture.save('red.jpg', quality=50); print(end='')": [{"png", "text"}],
    "import io; picture.save(io.BytesIO(), 'PNG')": [],
    "Image.open('red.png').size": [{"text"}],
    "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()": [{"png", "text", "chart"}],
    "display({'text/latex': r'\\text{X}'}, raw=True)": [{"latex"}],
    "display({'text/html': '<b>x</b>'}, raw=True)": [{"html"}],
    "display({'text/html': '<b>' + 'x' * 1_000_000}, raw=True)": [{"html"}],
    "display({'application/json': {'a': 1}}, raw=True)": [{"json"}],
    "display({'application/json': list(range(100_000))}, raw=True)": [{"json"}],
    "display({'application/x-own': {'a': 1}}, raw=True)": [{"extra"}],
    "from IPython.display import Latex; Latex('$x$')": [{"latex", "text"}],
}


async def test_results_have_the_forms_that_were_shown_and_no_more(world: World, headers: dict[str, str]) -> None:
    for code, forms in SHOWN.items():
        found = await shown(world, headers, code)
        results = [{*one} - {"type", "is_main_result"} for one in found if one["type"] == "result"]
        assert results == forms, (code, found)
    failed = await shown(world, headers, "picture.save('red.xyz')")
    assert [(one["type"], one["name"]) for one in failed] == [("error", "ValueError")]
    (figure,) = await shown(world, headers, "plt.figure(figsize=(2, 1)); plt.plot([1]); plt.show()")
    assert figure["text"] == "<Figure size 200x100 with 1 Axes>"

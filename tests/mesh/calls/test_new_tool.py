"""A tool is added as CONTRIBUTING.md says, to a copy of the sources: two files, and it is everywhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mesh.conftest import Home

ROOT = Path(__file__).resolve().parents[3]
DECLARED = "sdk/sandmesh/_tools/filesystem.py"
HANDLED = "services/sandmeshd/agent/tools/files.py"
PROGRAM = """
import asyncio, json, os, sys
from mcp import Client, StdioServerParameters
from sandmesh import FilesystemSandbox
from sandmesh.tools import count_lines

async def offered():
    command = ["-m", "sandmeshd.cli.user", "mcp", "--type", "filesystem"]
    async with Client(StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))) as client:
        return [tool.name for tool in (await client.list_tools()).tools]

with FilesystemSandbox() as box:
    box.fs.write("a", "1\\n2\\n3\\n")
    method, function = box.count_lines("a"), count_lines.bind(box)(path="a")
    listed = box.list_tools()["filesystem"]["count_lines"]["json_schema"]["function"]
    described = listed["description"], listed["parameters"]["required"]
    print(json.dumps([method.text, function.text, *described, "count_lines" in asyncio.run(offered())]))
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy what the tool is added to, with the declaration that CONTRIBUTING.md shows."""
    for part in ("sdk", "services"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("scripts/tool_stubs.py", "docs/tools.md", "pyproject.toml"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, tmp_path / part)
    append(tmp_path / DECLARED, blocks()[0])
    return tmp_path


@pytest.fixture
def run(tree: Path, home: Home) -> Run:
    """Return what runs Python with the copy."""
    environment = home.environment | {"PYTHONPATH": f"{tree}/sdk:{tree}/services"}

    def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)

    return run_python


def blocks() -> list[str]:
    section = (ROOT / "CONTRIBUTING.md").read_text().split("**A tool**")[1].split("**A template.**")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def append(path: Path, block: str) -> None:
    path.write_text(f"{path.read_text()}\n\n{block}")


def test_a_tool_is_declared_once_and_handled_once(tree: Path, run: Run) -> None:
    handled = tree / HANDLED
    append(handled, blocks()[1])
    handled.write_text(
        handled.read_text().replace("    CreateDirectory,\n", "    CountLines,\n    CreateDirectory,\n", 1)
    )
    stale = run("scripts/tool_stubs.py", "--check")
    generated = ("sdk/sandmesh/tools.pyi", "sdk/sandmesh/sandbox/tools/tool_groups.pyi", "docs/tools.md")
    assert f"stale, run `make stubs`: {', '.join(generated)}" in stale.stderr
    for arguments in (["scripts/tool_stubs.py"], ["scripts/tool_stubs.py", "--check"]):
        written = run(*arguments)
        assert written.returncode == 0, written.stderr
    assert "count_lines = tool_method(CountLines)" in (tree / "sdk/sandmesh/sandbox/tools/tool_groups.pyi").read_text()
    assert "count_lines: DeclaredTool" in (tree / "sdk/sandmesh/tools.pyi").read_text()
    assert "`count_lines`" in (tree / "docs/tools.md").read_text()
    done = run("-c", PROGRAM)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["3", "3", "Count the lines of a text file.", ["path"], True]


def test_a_tool_without_a_handler_is_refused_with_both_places(tree: Path, run: Run) -> None:
    done = run("-c", "from sandmesh import BaseSandbox\nBaseSandbox().start()")
    line = (tree / DECLARED).read_text().splitlines().index("class CountLines(Tool):")
    assert done.returncode == 1
    assert re.search(
        rf"the tool count_lines, declared at \S*filesystem.py:{line}, has no handler: "
        r"add it in sandmeshd.agent.tools.files",
        done.stderr,
    ), done.stderr


def test_a_tool_that_is_declared_twice_is_refused_with_both_places(tree: Path, run: Run) -> None:
    append(tree / "sdk/sandmesh/_tools/git.py", '@tool("git")\nclass CountLines(Tool):\n    """Count."""\n')
    done = run("-m", "sandmeshd.cli.user", "up")
    assert re.search(r"count_lines is declared twice, at \S*filesystem.py:\d+ and \S*git.py:\d+: rename", done.stderr)

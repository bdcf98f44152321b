"""Programs of the pages, run from an installed wheel, where the sources are not."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from mcp import Client, StdioServerParameters, types
from scripts.release.artefacts import export, tool

TESTS: Final = (
    "tests/mesh/cli/test_examples.py::test_an_example_prints_what_it_promises",
    "tests/mesh/integrations/test_agent_loop.py",
    "tests/mesh/integrations/test_integrations.py",
)
"""What runs the programs of the README, of the quickstart and of the frameworks' pages."""
SECONDS: Final = 1500


class ProgramFailed(Exception):
    """A program of a page did not do what the page says."""


def first_block(readme: str) -> str:
    """Return the first commands of the README, as they are printed.

    Raises:
        ValueError: It has none.
    """
    found = re.search(r"^```\w*\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError("README.md has no block of commands")
    return found[1]


def run_first_commands(commit: str, folder: Path) -> str:
    """Run the README's first commands in the files of a commit, and return what they print.

    Raises:
        ProgramFailed: One fails.
    """
    sources = export(commit, folder / "clone")
    return _run("bash", "-euc", first_block((sources / "README.md").read_text()), cwd=sources)


def run_tests(commit: str, wheel: Path, folder: Path) -> str:
    """Run the pages' programs with a wheel in the place of the sources, and return pytest's closing line.

    Raises:
        ProgramFailed: One fails.
    """
    sources = export(commit, folder / "tests")
    python = sources / ".venv" / "bin" / "python"
    _run(
        tool("uv"),
        "venv",
        "--quiet",
        "--no-config",
        "--python",
        "/usr/bin/python3",
        str(python.parents[1]),
        cwd=sources,
    )
    _run(tool("uv"), "pip", "install", "--quiet", "--no-config", "--python", str(python), f"{wheel}[dev]", cwd=sources)
    shutil.rmtree(sources / "services")
    shutil.rmtree(sources / "sdk")
    [site] = (python.parents[1] / "lib").glob("python3*/site-packages")
    # Where programs in environments of frameworks find the SDK.
    (sources / "sdk").mkdir()
    (sources / "sdk" / "sandmesh").symlink_to(site / "sandmesh")
    printed = _run(str(python), "-m", "pytest", "-q", *TESTS, cwd=sources)
    return printed.strip().splitlines()[-1]


def run_mcp(wheel: Path) -> str:
    """Run `sandmesh mcp` by uvx from a wheel, and return what a client's call of a tool gets.

    Raises:
        ProgramFailed: It is not the tool's answer.
    """
    text = asyncio.run(_call_tool(wheel))
    if text != "42":
        raise ProgramFailed(f"sandmesh mcp answered {text!r}")
    return text


async def _call_tool(wheel: Path) -> str:
    arguments = ["--quiet", "--no-config", "--from", f"{wheel}[local]", "sandmesh", "mcp"]
    server = StdioServerParameters(command=tool("uvx"), args=arguments, env=_environment())
    async with asyncio.timeout(SECONDS), Client(server) as client:
        result = await client.call_tool("run_ipython_cell", {"code": "6 * 7"})
        return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


def _environment() -> dict[str, str]:
    left_out = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _run(*command: str, cwd: Path) -> str:
    out = subprocess.PIPE
    done = subprocess.run(
        command,
        cwd=cwd,
        env=_environment(),
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode:
        raise ProgramFailed(f"{' '.join(command)[:200]} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout

"""Adapters beside a framework that is too old, too new or absent: one line that says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ADAPTERS: Final = {
    "agentscope": "agentscope",
    "deepagents": "deepagents",
    "gym": "gymnasium",
    "harbor": "harbor",
    "inspect_sandbox": "inspect-ai",
    "langchain": "langchain-core",
    "mini_swe_agent": "mini-swe-agent",
    "openai_agents": "openai-agents",
    "openenv": "openenv-core",
    "pydantic_ai": "pydantic-ai-slim",
    "swe_rex": "swe-rex",
    "verl": "verl",
}
IMPORT: Final = """
import importlib, json, sys
said = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"sandmesh.integrations.{name}")
    except ImportError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


def said_of(folder: Path, version: str) -> dict[str, str]:
    """Import each adapter where its framework has a version; return what the errors say."""
    for package in ADAPTERS.values():
        info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, *ADAPTERS],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("version", ["0.0.1", "99.0", "99.0.0rc1"])
def test_a_framework_of_another_version_is_one_line_with_what_is_needed(tmp_path: Path, version: str) -> None:
    said = said_of(tmp_path, version)
    assert set(said) == set(ADAPTERS)
    for name, package in ADAPTERS.items():
        line = said[name]
        assert "\n" not in line
        assert line.startswith(f"this adapter works with {package}"), line
        assert f', and {version} is installed: pip install "sandmesh[' in line, line
        assert "<" in line, line
        assert ">=" in line, line


def test_an_absent_framework_is_one_line_with_its_extra() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, "deepagents", "verl"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        name: f"{name} is not installed (No module named '{name}'): pip install \"sandmesh[{name}]\""
        for name in ("deepagents", "verl")
    }

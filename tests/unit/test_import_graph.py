"""The import graph's program finds what it is there to refuse."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    """The names of the program."""
    return runpy.run_path(str(ROOT / "scripts" / "import_graph.py"))


def test_imports_are_found_wherever_they_are_written(program: dict[str, Any]) -> None:
    source = """
import sandmesh.errors
from . import beside
from ..above import name

def late():
    from sandmesh.results import ToolResult
    import_module("sandmeshd.agent.boot")
    import_module(f"sandmesh.toolkits.{which}")
    run([sys.executable, "-m", "sandmeshd.cli.user"])
"""
    assert set(program["imported_names"](ast.parse(source), "sandmesh.sandbox")) == {
        "sandmesh.errors",
        "sandmesh.sandbox.beside",
        "sandmesh.above.name",
        "sandmesh.results.ToolResult",
        "sandmeshd.agent.boot",
        "sandmesh.toolkits",
    }


def test_an_arrow_against_the_layers_and_one_on_a_circle_point_upward(program: dict[str, Any]) -> None:
    graph = {"top": {"middle"}, "middle": {"low", "other"}, "other": {"middle"}, "low": {"top2"}, "top2": set[str]()}
    depths = {"top": 0, "top2": 0, "middle": 1, "low": 2}
    assert program["upward"](graph, depths) == ["low -> top2", "middle -> other", "other -> middle"]
    assert program["circles"](graph) == [["middle", "other"]]
    assert program["floors"](graph) == 4


def test_one_driver_does_not_import_another(program: dict[str, Any]) -> None:
    imports = {
        "sandmeshd.drivers.engine.app": {"sandmeshd.drivers.kubernetes.pods.pod", "sandmeshd.drivers.engine.docker.app"}
    }
    problem = "sandmeshd.drivers.engine.app imports sandmeshd.drivers.kubernetes.pods.pod of another driver"
    assert list(program["driver_imports"](imports)) == [problem]

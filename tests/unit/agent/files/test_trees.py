"""Trees, searches and their bounds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandmesh import tools
from sandmesh.tools import Tool
from sandmeshd.agent.calls.answer import Answer
from sandmeshd.agent.files.globs import Pattern
from sandmeshd.agent.files.trees import tree as trees
from tests.processes import links_of

Run = Callable[[Tool], Answer]
Text = Callable[[Tool], str]


@pytest.fixture
def project(root: Path) -> Path:
    """A small project."""
    for name in ("README.md", "src/main.py", "src/lib/Main.PY", "node_modules/x/main.js", "docs/main guide.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


def found(text: str, root: Path) -> list[str]:
    return [line.removeprefix(f"{root}/") for line in text.split("\n")]


def test_a_tree_is_json_and_structured_alike(run: Run, project: Path) -> None:
    (project / "empty").mkdir()
    (project / "link").symlink_to("src")
    answer = run(tools.DirectoryTree("."))
    assert answer.structured == {"entries": json.loads(answer.content[0]["text"])}
    entries: list[dict[str, Any]] = json.loads(answer.content[0]["text"])
    by_name = {entry["name"]: entry for entry in entries}
    assert by_name["README.md"] == {"name": "README.md", "type": "file"}
    assert by_name["empty"] == {"name": "empty", "type": "directory", "children": []}
    assert by_name["link"] == {"name": "link", "type": "file"}
    assert [child["name"] for child in by_name["src"]["children"]] == ["lib", "main.py"]


def test_a_tree_with_names_that_are_not_utf8_is_still_json(run: Run, root: Path) -> None:
    os.close(os.open(os.fsencode(root) + b"/caf\xe9", os.O_CREAT))
    (root / "a\nb").write_text("")
    answer = run(tools.DirectoryTree("."))
    assert answer.content[0]["text"].encode()
    assert [entry["name"] for entry in json.loads(answer.content[0]["text"])] == ["a\nb", "$'caf\\xe9'"]


def test_a_tree_that_is_too_deep_or_too_large_is_refused(failure_of: Text, root: Path) -> None:
    (root / "/".join(["d"] * (trees.DEEPEST_TREE + 1))).mkdir(parents=True)
    assert "levels" in failure_of(tools.DirectoryTree("."))
    assert "levels" not in failure_of(tools.DirectoryTree("d/x"))
    wide = root / "wide"
    wide.mkdir()
    for at in range(trees.MOST_IN_TREE + 1):
        os.close(os.open(wide / str(at), os.O_CREAT))
    assert "50,000 entries" in failure_of(tools.DirectoryTree("wide"))
    assert "50,000 entries" in failure_of(tools.ListDirectory("wide"))
    assert "10,000 names" in failure_of(tools.SearchFiles("wide", "*"))


def test_walking_leaves_no_descriptor_open(run: Run, failure_of: Text, project: Path) -> None:
    (project / "/".join(["d"] * 70)).mkdir(parents=True)
    before = opened_below(project)
    failure_of(tools.DirectoryTree("."))
    run(tools.SearchFiles(".", "main"))
    run(tools.ListDirectory("."))
    assert opened_below(project) == before


def opened_below(folder: Path) -> list[str]:
    """Return what this process has open there: what else it has may be closed at any time."""
    return sorted(link for link in links_of("self") if link.startswith(str(folder)))


@pytest.mark.parametrize(
    ("pattern", "exclude", "expected"),
    [
        ("MAIN", [], ["docs/main guide.txt", "node_modules/x/main.js", "src/lib/Main.PY", "src/main.py"]),
        ("*.py", [], ["src/lib/Main.PY", "src/main.py"]),
        ("src/*.py", [], ["src/main.py"]),
        ("src/**/*.py", [], ["src/lib/Main.PY", "src/main.py"]),
        ("**/main.*", ["node_modules"], ["src/lib/Main.PY", "src/main.py"]),
        ("main", ["node_modules/**", "*.txt"], ["src/lib/Main.PY", "src/main.py"]),
        ("main", ["src/lib", "**/x", "docs"], ["src/main.py"]),
        ("lib", [], ["src/lib"]),
        ("[rs]*", ["node_modules"], ["README.md", "src"]),
        ("absent", [], ["No matches found."]),
    ],
)
def test_a_search_finds_what_the_pattern_says(
    text_of: Text, project: Path, pattern: str, exclude: list[str], expected: list[str]
) -> None:
    assert found(text_of(tools.SearchFiles(".", pattern, exclude)), project) == expected


def test_a_search_below_a_directory_gives_whole_paths(text_of: Text, project: Path) -> None:
    assert text_of(tools.SearchFiles("src/", "main.py")) == f"{project}/src/lib/Main.PY\n{project}/src/main.py"


@pytest.mark.timeout(60)
def test_no_pattern_takes_exponential_time() -> None:
    name = "a" * 255
    assert not Pattern("*a" * 60 + "b").finds((name,))
    assert not Pattern("/".join(["**", "*a*"] * 20) + "/b").finds((name,) * 100)

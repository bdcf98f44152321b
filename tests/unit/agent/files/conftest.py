"""A workspace on a real directory, with a sentinel outside of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandmesh.tools import Tool
from sandmeshd.agent.calls.answer import Answer, ToolFailure
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.tools.files import HANDLERS

SENTINEL = "the sentinel outside"

Run = Callable[[Tool], Answer]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace's directory."""
    made = tmp_path / "workspace"
    made.mkdir()
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the workspace, with a file that must never be read or changed."""
    made = tmp_path / "outside"
    made.mkdir()
    (made / "secret").write_text(SENTINEL)
    return made


@pytest.fixture
def granted(tmp_path: Path) -> Path:
    """A further directory that tools may reach."""
    made = tmp_path / "granted"
    made.mkdir()
    return made


@pytest.fixture
def workspace(root: Path, granted: Path) -> Iterator[Workspace]:
    """The workspace."""
    with Workspace(str(root), [str(granted)]) as made:
        yield made


@pytest.fixture
def run(workspace: Workspace) -> Run:
    """Run a tool and give its answer."""
    return lambda request: HANDLERS[type(request)](workspace, request)


@pytest.fixture
def text_of(run: Run) -> Callable[[Tool], str]:
    """Run a tool and give its text."""
    return lambda request: str(run(request).content[0]["text"])


@pytest.fixture
def failure_of(run: Run) -> Callable[[Tool], str]:
    """Run a tool that must fail and give what it says."""

    def failed(request: Tool) -> str:
        with pytest.raises(ToolFailure) as caught:
            run(request)
        return str(caught.value)

    return failed

"""docs/troubleshooting.md has every reason of an error, and its commands work."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh.api.errors.v1 import errors_pb2
from sandmesh.errors import CLASSES
from tests.mesh.commands import Commands, running_mesh

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md").read_text()
REASONS = [value.name.removeprefix("ERROR_REASON_") for value in errors_pb2.ErrorReason.DESCRIPTOR.values[1:]]


def entries() -> dict[str, str]:
    """Return the text below each heading of a reason."""
    return dict(re.findall(r"^### ([A-Z_]+)\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_reason_has_an_entry_and_every_entry_is_a_reason() -> None:
    assert sorted(entries()) == sorted(REASONS)
    assert sorted(entries()) == sorted(CLASSES)


def test_every_entry_names_a_command_that_shows_it() -> None:
    assert [reason for reason, text in entries().items() if not re.search(r"`(sandmesh|grep) [^`]+`", text)] == []


@pytest.fixture
def sandmesh() -> Generator[Commands]:
    """Run a mesh."""
    with running_mesh() as commands:
        yield commands


@pytest.mark.timeout(300)
def test_the_commands_to_begin_with_work(sandmesh: Commands) -> None:
    sandmesh.run("run", "--", "true")
    [block] = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = [line.partition("#")[0].split() for line in block.splitlines()]
    assert [words[0] for words in lines] == ["sandmesh"] * 4
    for words in lines:
        assert sandmesh.run(*words[1:]).out

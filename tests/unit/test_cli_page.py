"""The page about the commands has every command with all its options."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from scripts.cli_page import PROGRAMS, walk

from sandmeshd.cli import service_app, user_app
from sandmeshd.cli.coding_agents.agents import AGENTS
from sandmeshd.cli.terminal.exit_codes import MEANINGS
from sandmeshd.cli.terminal.lazy_group import LazyCommand, LazyGroup

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
HINT = "python scripts/cli_page.py > docs/cli.md"


def test_every_command_has_a_section_and_an_example() -> None:
    for program, app in PROGRAMS.items():
        for path, command in walk(program, typer.main.get_command(app)):
            assert path in SECTIONS, HINT
            assert command.epilog, f"{path} has no example in its help"
            shown = [param for param in command.params if not getattr(param, "hidden", False) and param.name != "help"]
            missing = [one.opts for one in shown if one.opts[0].startswith("-") and one.opts[0] not in SECTIONS[path]]
            assert missing == [], HINT


def test_every_command_answers_in_json_but_a_screen_and_those_that_pass_on_what_another_program_writes() -> None:
    without = {
        path
        for path, command in walk("sandmesh", typer.main.get_command(user_app.app))
        if not any("--output" in param.opts for param in command.params)
    }
    agents = [f"agent {name}" for name in AGENTS]
    assert without == {
        f"sandmesh {name}" for name in ("run", "exec", "shell", "python", "mcp", "ssh", "top", "worker claude", *agents)
    }


@pytest.mark.parametrize("app", [user_app.app, service_app.app], ids=["sandmesh", "sandmeshd"])
def test_the_summary_of_each_command_begins_as_its_help_does(app: typer.Typer) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    for command in group.commands.values():
        assert isinstance(command, LazyCommand)
        text = " ".join(str(command.load().help).split())
        assert text.startswith(command.entry.summary.rstrip(".")), command.entry.name


def test_the_page_has_the_exit_codes() -> None:
    assert all(f"| {code} | {meaning} |" in PAGE for code, meaning in MEANINGS.items()), HINT

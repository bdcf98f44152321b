"""The page about the commands has every command with all its options."""

from __future__ import annotations

from pathlib import Path

import typer
from scripts.cli_page import walk

from sandmeshd.cli import service, user
from sandmeshd.cli.terminal.exit_codes import MEANINGS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
HINT = "python scripts/cli_page.py > docs/cli.md"


def test_every_command_has_a_section_and_an_example() -> None:
    for program, app in (("sandmesh", user.app), ("sandmeshd", service.app)):
        for path, command in walk(program, typer.main.get_command(app)):
            assert path in SECTIONS, HINT
            assert command.epilog, f"{path} has no example in its help"
            shown = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
            missing = [one.opts for one in shown if one.opts[0].startswith("-") and one.opts[0] not in SECTIONS[path]]
            assert missing == [], HINT


def test_every_command_answers_in_json_but_those_that_pass_on_what_another_program_writes() -> None:
    without = {
        path
        for path, command in walk("sandmesh", typer.main.get_command(user.app))
        if not any("--output" in one.opts for one in command.params)
    }
    assert without == {f"sandmesh {name}" for name in ("run", "exec", "shell", "python", "mcp")}


def test_the_page_has_the_exit_codes() -> None:
    assert all(f"| {code} | {meaning} |" in PAGE for code, meaning in MEANINGS.items()), HINT

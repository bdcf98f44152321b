"""Print docs/cli.md from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from sandmeshd.cli import service, user
from sandmeshd.cli.terminal.exit_codes import MEANINGS

HEAD = """# The commands

`sandmesh` is for people and scripts, `sandmeshd` runs one service of a mesh. `python scripts/cli_page.py > docs/cli.md`
writes this page.

Answers go to standard output, what goes wrong to standard error. `-o json` prints JSON with the names of the protos'
fields, one line where nobody looks, indented in a terminal; every command has it whose output is not that of what it
runs (run, exec, shell, python) or a protocol's (mcp). Tables lose their colours where standard output is no
terminal or `NO_COLOR` is set. `sandmesh --install-completion` makes the shell complete commands, ids of sandboxes and
templates.

## Exit codes

| code | meaning |
| --- | --- |"""


def page() -> str:
    """Give the whole page."""
    codes = [f"| {code} | {meaning} |" for code, meaning in MEANINGS.items()]
    signals = "| 128 + N | it was ended by the signal N: 130 by Ctrl-C, 143 by SIGTERM |"
    parts = [*_sections("sandmesh", user.app), *_sections("sandmeshd", service.app)]
    return "\n".join([HEAD, *codes, signals, "", *parts]).rstrip() + "\n"


def _sections(program: str, app: typer.Typer) -> Iterator[str]:
    for path, command in walk(program, typer.main.get_command(app)):
        yield from _section(path, command)


def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Give every command that does something, by its words."""
    below: dict[str, Any] = getattr(command, "commands", {})
    if not below:
        yield path, command
    for name, one in below.items():
        yield from walk(f"{path} {name}", one)


def _section(path: str, command: Any) -> Iterator[str]:
    yield f"## {path}"
    yield ""
    yield re.sub(r"\s*\n\s*", " ", str(command.help).strip())
    yield ""
    examples = _examples(command.epilog)
    if examples:
        yield "```"
        yield from examples
        yield "```"
        yield ""
    shown = [one for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    if shown:
        yield "| | meaning | default |"
        yield "| --- | --- | --- |"
        yield from (_row(one) for one in shown)
        yield ""


def _examples(epilog: str | None) -> list[str]:
    # Examples stand after another with a bar between, which in a command would have no `sandmesh` after it.
    text = re.sub(r"^Examples?: ", "", epilog or "")
    return re.split(r" [|;] (?=sandmeshd? )", text) if text else []


def _row(one: Any) -> str:
    option = one.param_type_name == "option"
    name = ", ".join([*one.opts, *one.secondary_opts]) if option else (one.metavar or one.name)
    stated = one.default not in (None, False, ()) and not callable(one.default)
    default = f"`{getattr(one.default, 'value', one.default)}`" if stated else ""
    variables = [one.envvar] if isinstance(one.envvar, str) else list(one.envvar or ())
    named = f" ({', '.join(f'`{variable}`' for variable in variables)})" if variables else ""
    meaning = f"{one.help or ''}{named}".replace("|", r"\|")
    return f"| `{name}` | {meaning} | {default} |"


if __name__ == "__main__":
    print(page(), end="")

"""Every block of code in the pages is run, or says why not; what is not run is at least well-formed."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from itertools import dropwhile
from typing import Any

import pytest
import typer
import yaml
from scripts.blocks.blocks import ROOT, Block, Rule, blocks, fate_of, not_run
from scripts.blocks.rules import RULES
from scripts.cli_page import PROGRAMS, walk

BLOCKS = list(blocks())
COMMANDS: Mapping[str, Any] = {
    path: command for name, app in PROGRAMS.items() for path, command in walk(name, typer.main.get_command(app))
}


def place(block: Block) -> str:
    return f"{block.page}:{block.line}"


def test_every_block_is_run_or_says_why_not() -> None:
    assert [place(block) for block in BLOCKS if fate_of(block, RULES) is None] == []


def test_a_block_without_a_fate_is_found_with_page_and_line() -> None:
    lost = Block("docs/new.md", 7, "python", "1 + 1\n")
    assert fate_of(lost, RULES) is None
    assert fate_of(lost, [Rule("docs/.*", not_run("is a sum"), "1 +")]) == not_run("is a sum")


def test_every_test_that_is_named_is_there() -> None:
    assert [rule.fate.test for rule in RULES if rule.fate.test and not (ROOT / rule.fate.test).is_file()] == []


def test_every_rule_is_needed() -> None:
    used = {next(rule for rule in RULES if rule.covers(block)) for block in BLOCKS}
    assert [rule for rule in RULES if rule not in used] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=place)
def test_python_compiles(block: Block) -> None:
    # A block may be the middle of a function.
    code = block.code if not block.code.startswith(" ") else f"if True:\n{block.code}"
    compile(code, place(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in {"json", "toml", "yaml"}], ids=place)
def test_data_parses(block: Block) -> None:
    match block.language:
        case "json":
            json.loads(block.code)
        case "toml":
            tomllib.loads(block.code)
        case _:
            yaml.safe_load(block.code)


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command of sandmesh of a block."""
    if block.language not in {"", "bash", "sh", "console"}:
        return
    for line in block.code.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s*(?:&&|;|\||\$\()\s*", line.removeprefix("$ ")):
            words = part.split(" #", 1)[0].split("  #", 1)[0]
            if re.match(r"(?:[A-Z_]+=\S+ )*sandmeshd? [a-z]", words):
                yield list(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), split(words)))


def split(words: str) -> list[str]:
    try:
        return shlex.split(words.rstrip(")"))
    except ValueError:
        # A quotation that goes on in the next line.
        return words.split()


def own_options(words: list[str], flags: set[str]) -> list[str]:
    """Return the words up to the program that the command runs: one that is neither an option nor an option's value."""
    for number in range(2, len(words)):
        before = words[number - 1]
        if not words[number].startswith("-") and (not before.startswith("-") or before in flags):
            return words[:number]
    return words


def problem(words: list[str]) -> str:
    """Return what is wrong with a command, empty where all of it exists."""
    named = [" ".join(words[:count]) for count in (3, 2) if " ".join(words[:count]) in COMMANDS]
    if not named:
        return f"there is no command {words[1]}"
    if not COMMANDS[named[0]].context_settings.get("allow_interspersed_args", True):
        flags = {name for param in COMMANDS[named[0]].params if getattr(param, "is_flag", False) for name in param.opts}
        words = own_options(words, flags)
    known = {name for param in COMMANDS[named[0]].params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
    # What follows `--` is another program's.
    options = [word.partition("=")[0] for word in (*words, "--")[: (*words, "--").index("--")] if word.startswith("--")]
    return ", ".join(f"there is no option {name}" for name in options if name not in known)


def test_commands_and_their_options_exist() -> None:
    found = {f"{place(block)}: {' '.join(words)}": problem(words) for block in BLOCKS for words in commands(block)}
    assert len(found) > 100
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_a_command_that_is_gone_is_found() -> None:
    assert problem(["sandmesh", "launch"]) == "there is no command launch"
    assert problem(["sandmesh", "up", "--fast"]) == "there is no option --fast"
    assert problem(["sandmesh", "token", "create", "me", "--form", "e2b"]) == ""

"""The blocks of code in the pages: where each stands, what runs it, or why nothing does."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_BLOCK: Final = re.compile(r"^(`{3,})(\w*)[^\n]*\n(.*?)^\1`*$", re.MULTILINE | re.DOTALL)
_EXAMPLE: Final = re.compile(r"(?:#|//) (examples/[\w/]+\.(?:py|mjs))\n")


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: str
    """Its path in the repository."""
    line: int
    language: str
    code: str

    @property
    def first(self) -> str:
        """Its first line."""
        return self.code.split("\n", 1)[0]

    @property
    def example(self) -> str:
        """The file in examples/ whose text it is, empty where it is not one."""
        found = _EXAMPLE.match(self.code)
        return found[1] if found else ""


@dataclass(frozen=True)
class Fate:
    """What runs a block, or why nothing does."""

    test: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Rule:
    """The fate of the blocks of a page: all of them, or those whose first line begins so, or of one language."""

    page: str
    fate: Fate
    first: str = ""
    language: str | None = None

    def covers(self, block: Block) -> bool:
        """Return whether a block is one of these."""
        fits = self.language is None or self.language == block.language
        return fits and re.fullmatch(self.page, block.page) is not None and block.first.startswith(self.first)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages whose code is listed."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def blocks(root: Path = ROOT) -> Iterator[Block]:
    """Yield every block of every page."""
    for path in pages(root):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        for found in _BLOCK.finditer(text):
            yield Block(name, text.count("\n", 0, found.start()) + 1, found[2], found[3])


def run_by(test: str) -> Fate:
    """Return the fate of a block that a test runs."""
    return Fate(test=test)


def not_run(reason: str) -> Fate:
    """Return the fate of a block that nothing runs."""
    return Fate(reason=reason)


def fate_of(block: Block, rules: Sequence[Rule]) -> Fate | None:
    """Return the fate of a block by the first rule that covers it; None without any."""
    return next((rule.fate for rule in rules if rule.covers(block)), None)

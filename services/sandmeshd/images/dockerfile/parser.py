"""The instructions of a Dockerfile: continued lines joined, comments left out, here-documents and flags apart.

Of the parsers on PyPI, dockerfile-parse reads no here-documents, and dockerfile, which is Docker's own in Go, has no
package for ARM and brings Go's threads and signal handlers into the process. Tests compare this one with the latter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter

from sandmesh.errors import InvalidArgument
from sandmeshd.images.dockerfile.words import WordError, expand, raw_words

LARGEST: Final = 1 << 20
"""The most bytes of a Dockerfile."""
_DIRECTIVE: Final = re.compile(r"#\s*(?P<name>[a-zA-Z][a-zA-Z0-9]*)\s*=\s*(?P<value>.+?)\s*")
_SYNTAX: Final = re.compile(r"(docker\.io/)?docker/dockerfile(-upstream)?(:\S+)?")
_HEREDOC: Final = re.compile(r"\d*<<(?P<chomp>-?)(?P<name>[^<]+)")
_WORDS: Final = TypeAdapter(tuple[str, ...])
_WITH_HEREDOCS: Final = frozenset({"RUN", "COPY", "ADD"})


@dataclass(frozen=True)
class Heredoc:
    """A here-document: its name, its lines, and whether variables are put in place there."""

    name: str
    content: str
    expands: bool


@dataclass(frozen=True)
class ParsedInstruction:
    """An instruction."""

    line: int
    """Where it begins, from 1."""
    name: str
    """In upper case, like RUN."""
    flags: tuple[str, ...]
    """Like `--from=build`."""
    text: str
    """What follows the flags."""
    heredocs: tuple[Heredoc, ...] = ()
    escape: str = "\\"

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words of the JSON form; None where it has another."""
        if not self.text.startswith("["):
            return None
        try:
            return _WORDS.validate_json(self.text, strict=True)
        except ValueError:
            return None

    def refuse(self, why: str) -> InvalidArgument:
        """Return the error of an instruction that cannot be carried out."""
        shown = " ".join((self.name, *self.flags, self.text.partition("\n")[0]))[:120]
        return InvalidArgument(f"line {self.line} of the Dockerfile, {shown}: {why}", {"line": str(self.line)})


def parse_dockerfile(data: bytes) -> list[ParsedInstruction]:
    """Parse a Dockerfile.

    Raises:
        InvalidArgument: It is not one; the message has the line.
    """
    if len(data) > LARGEST:
        raise InvalidArgument(f"the Dockerfile is larger than {LARGEST} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the Dockerfile is not UTF-8: byte {error.start}") from None
    found = list(_InstructionReader([line.removesuffix("\r") for line in text.split("\n")]).instructions())
    if not found:
        raise InvalidArgument("the Dockerfile has no instruction")
    return found


class _InstructionReader:
    """The lines of a Dockerfile, as they are read."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._position = 0
        self._escape = "\\"

    def instructions(self) -> Iterator[ParsedInstruction]:
        self._read_directives()
        while self._position < len(self._lines):
            line = self._lines[self._position]
            self._position += 1
            if line.strip() and not line.lstrip().startswith("#"):
                number, joined = self._position, self._joined(line.lstrip())
                if joined:
                    yield self._instruction(number, joined)

    def _read_directives(self) -> None:
        """Read the comments at the beginning that mean something: `escape` changes how the rest is read."""
        for number, line in enumerate(self._lines, 1):
            found = _DIRECTIVE.fullmatch(line.strip())
            if found is None:
                return
            if found["name"].lower() == "escape":
                if found["value"] not in ("\\", "`"):
                    raise InvalidArgument(f"line {number} of the Dockerfile: the escape character is \\ or `")
                self._escape = found["value"]
            elif found["name"].lower() == "syntax" and not _SYNTAX.fullmatch(found["value"]):
                known = "it is read as docker/dockerfile:1 is, and no other program is started for it"
                raise InvalidArgument(
                    f"line {number} of the Dockerfile: {line.strip()[:120]}: {known}: remove the line"
                )

    def _joined(self, line: str) -> str:
        """Return a line with those that continue it; empty for a continuation of nothing."""
        joined, continued = self._without_continuation(line)
        while continued and self._position < len(self._lines):
            line = self._lines[self._position]
            self._position += 1
            if line.strip() and not line.lstrip().startswith("#"):
                more, continued = self._without_continuation(line)
                joined += more
        return joined.strip()

    def _instruction(self, number: int, joined: str) -> ParsedInstruction:
        name, *others = joined.split(maxsplit=1)
        rest = "".join(others)
        flags, text = _split_flags(rest.strip(), self._escape)
        read = ParsedInstruction(number, name.upper(), flags, text, escape=self._escape)
        heredocs = tuple(self._heredocs(read)) if read.name in _WITH_HEREDOCS and read.words is None else ()
        return ParsedInstruction(number, read.name, flags, text, heredocs, self._escape)

    def _without_continuation(self, line: str) -> tuple[str, bool]:
        cut = line.rstrip(" \t")
        return (cut[:-1], True) if cut.endswith(self._escape) else (line, False)

    def _heredocs(self, read: ParsedInstruction) -> Iterator[Heredoc]:
        for word in raw_words(read.text, self._escape):
            found = _HEREDOC.fullmatch(word)
            if found is None:
                continue
            try:
                name = expand(found["name"], {}, self._escape) if "$" not in found["name"] else found["name"]
            except WordError:
                continue
            content = self._heredoc(read, name, chomp=bool(found["chomp"]))
            yield Heredoc(name, content, expands=name == found["name"])

    def _heredoc(self, read: ParsedInstruction, name: str, *, chomp: bool) -> str:
        content: list[str] = []
        while self._position < len(self._lines):
            line = self._lines[self._position]
            self._position += 1
            line = line.lstrip("\t") if chomp else line
            if line == name:
                return "".join(f"{each}\n" for each in content)
            content.append(line)
        raise read.refuse(f"its here-document does not end: a line {name} is missing")


def _split_flags(text: str, escape: str) -> tuple[tuple[str, ...], str]:
    flags: list[str] = []
    while text.startswith("--"):
        word = raw_words(text, escape)[0]
        text = text[len(word) :].lstrip()
        if word == "--":
            break
        flags.append(word)
    return tuple(flags), text

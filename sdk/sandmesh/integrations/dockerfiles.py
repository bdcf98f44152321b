"""Dockerfiles whose instructions are carried out in a sandbox, by its only user and on top of its template.

What that cannot do is refused, by its line. `FROM` is not pulled: the sandbox's type stands for it.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

_VARIABLE: Final = re.compile(r"\\(\$)|\$(\w+)|\$\{(\w+)(?::-([^}]*))?\}")
_WITHOUT_EFFECT: Final = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL"})
"""What is about programs that an engine starts, or about the image itself."""


class DockerfileRefused(Exception):
    """An instruction that no sandbox carries out, or that is none; the text says which and why."""


@dataclass(frozen=True)
class Instruction:
    """An instruction, as "RUN", with the text after it."""

    line: int
    name: str
    text: str

    def refuse(self, why: str) -> DockerfileRefused:
        """Return the error of an instruction that is not carried out."""
        return DockerfileRefused(f"line {self.line} of the Dockerfile, {self.name} {self.text}: {why}")


@dataclass(frozen=True)
class Run:
    """A command to be run, with its directory and variables."""

    instruction: Instruction
    command: str
    cwd: str
    env: Mapping[str, str]


@dataclass(frozen=True)
class Copy:
    """Files or directories of the context to be copied into the sandbox."""

    sources: tuple[Path, ...]
    target: str
    into: bool
    """Whether `target` is a directory that files are copied into, under their own names."""


@dataclass
class Build:
    """Reads the instructions of a Dockerfile; what it has set is known when all were read."""

    workdir: str
    env: dict[str, str] = field(default_factory=dict[str, str])
    """The variables of the sandbox, with those that the Dockerfile sets."""
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    """Variables of the build only."""

    def steps(self, text: str, context: Path) -> Iterator[Run | Copy]:
        """Yield what is to be done in the sandbox; the directory `workdir` may not be there before.

        Raises:
            DockerfileRefused: An instruction is not carried out.
        """
        instructions = list(parse(text))
        if [instruction.name for instruction in instructions].count("FROM") > 1:
            raise DockerfileRefused(
                "the Dockerfile has several stages: build an image of it, and a template that names it"
            )
        for one in instructions:
            if one.name in _WITHOUT_EFFECT or one.name == "FROM":
                continue
            step = self._step(one, context)
            if step is not None:
                yield step

    def _step(self, one: Instruction, context: Path) -> Run | Copy | None:
        if one.name == "RUN":
            return Run(one, _command(one), self.workdir, {**self.arguments, **self.env})
        if one.name in ("COPY", "ADD"):
            return self._copy(one, context)
        if one.name == "WORKDIR":
            self.workdir = posixpath.join(self.workdir, self._expand(one.text))
        elif one.name == "ENV":
            self.env.update(self._assignments(one))
        elif one.name == "ARG":
            name, _, value = one.text.partition("=")
            self.arguments[name.strip()] = self._expand("".join(_split(one, value)))
        elif one.name != "USER" or one.text not in ("root", "0"):
            raise one.refuse("a sandbox's type is what has this: see docs/templates.md")
        return None

    def _assignments(self, one: Instruction) -> dict[str, str]:
        first = one.text.split(None, 1)
        if len(first) == 2 and "=" not in first[0]:
            return {first[0]: self._expand(first[1])}
        pairs = [word.partition("=") for word in _split(one, one.text)]
        return {name: self._expand(value) for name, _, value in pairs}

    def _copy(self, one: Instruction, context: Path) -> Copy:
        words = _words(one)
        flags = [word for word in words if word.startswith("--")]
        if any(not flag.startswith(("--chown=", "--link")) for flag in flags):
            raise one.refuse("only the task's own files are copied, as they are")
        *patterns, target = [self._expand(word) for word in words if word not in flags]
        found = tuple(path for pattern in patterns for path in _matches(one, context, pattern))
        place = posixpath.normpath(posixpath.join(self.workdir, target))
        return Copy(found, place, into=target.endswith("/") or len(found) > 1)

    def _expand(self, text: str) -> str:
        known = {**self.arguments, **self.env}
        return _VARIABLE.sub(lambda found: found[1] or known.get(found[2] or found[3], found[4] or ""), text)


def parse(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile.

    Raises:
        DockerfileRefused: One has a here-document.
    """
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not (line.strip() or joined):
            continue
        first = first or number
        joined += line.strip() if not joined else f" {line.strip()}"
        if joined.endswith("\\"):
            joined = joined[:-1].rstrip()
            continue
        name, _, rest = joined.partition(" ")
        one, joined, first = Instruction(first, name.upper(), rest.strip()), "", 0
        if re.search(r"(?<!<)<<-?['\"]?\w", one.text):
            raise one.refuse("here-documents are not read: write the file beside it, and COPY it")
        yield one


def _command(one: Instruction) -> str:
    if one.text.startswith("--"):
        raise one.refuse("a build has no mounts, and only the sandbox's network")
    return shlex.join(_words(one)) if one.text.startswith("[") else one.text


def _words(one: Instruction) -> list[str]:
    if not one.text.startswith("["):
        return _split(one, one.text)
    try:
        return [str(word) for word in cast("list[object]", json.loads(one.text))]
    except ValueError as error:
        raise one.refuse(str(error)) from None


def _split(one: Instruction, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise one.refuse(str(error)) from None


def _matches(one: Instruction, context: Path, pattern: str) -> list[Path]:
    relative = pattern.lstrip("/") or "."
    found = [context] if relative in (".", "./") else sorted(context.glob(relative.rstrip("/")))
    if not found or not all(path.resolve().is_relative_to(context.resolve()) for path in found):
        raise one.refuse(f"{pattern} is not among the task's files")
    if (context / ".dockerignore").exists() and any(path.is_dir() for path in found):
        raise one.refuse("a .dockerignore is not read: copy the files by their names")
    return found

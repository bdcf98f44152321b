"""The stages of a Dockerfile, in their order, and the arguments before the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sandmesh.errors import InvalidArgument
from sandmeshd.images.dockerfile import ParsedInstruction


@dataclass
class Stage:
    """One FROM, and what follows it."""

    number: int
    start: ParsedInstruction
    base: str
    """What FROM names, with its variables."""
    name: str
    """In lower case, or empty."""
    instructions: list[ParsedInstruction] = field(default_factory=list[ParsedInstruction])


@dataclass
class Stages:
    """All of them."""

    arguments: list[ParsedInstruction]
    """ARG before the first FROM."""
    stages: list[Stage]

    def find(self, name: str, before: int | None = None) -> Stage | None:
        """Return a stage by its name or number, the last of that name; `before` is where its number must end."""
        for stage in reversed(self.stages[:before]):
            if name.lower() == stage.name or name == str(stage.number):
                return stage
        return None


def read_stages(instructions: Sequence[ParsedInstruction]) -> Stages:
    """Divide a Dockerfile into its stages.

    Raises:
        InvalidArgument: It does not begin with FROM, or one is not valid.
    """
    found = Stages([], [])
    for one in instructions:
        if one.name == "FROM":
            found.stages.append(_stage(len(found.stages), one))
        elif found.stages:
            found.stages[-1].instructions.append(one)
        elif one.name == "ARG":
            found.arguments.append(one)
        else:
            raise one.refuse("a Dockerfile begins with FROM")
    if not found.stages:
        raise InvalidArgument("the Dockerfile has no FROM")
    return found


def _stage(number: int, one: ParsedInstruction) -> Stage:
    words = one.text.split()
    if len(words) == 1:
        return Stage(number, one, words[0], "")
    if len(words) == 3 and words[1].upper() == "AS":
        return Stage(number, one, words[0], words[2].lower())
    raise one.refuse("write FROM IMAGE, or FROM IMAGE AS NAME")

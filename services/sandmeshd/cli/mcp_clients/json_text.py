"""Members of objects in the text of a JSON file: what is not changed keeps its bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sandmesh.errors import InvalidArgument

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True)
class _Member:
    key: str
    begin: int
    value: int
    end: int


def read(text: str) -> dict[str, Any]:
    """Return the object that a file has; a file of white space has none.

    Raises:
        InvalidArgument: The text is not JSON, not an object, or names a member twice.
    """
    if not text.strip():
        return {}
    try:
        found: object = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidArgument("it is not a JSON object")
    return cast("dict[str, Any]", found)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice in one object")
    return found


def with_member(text: str, path: Sequence[str], value: object) -> str:
    """Return a text whose object has a value at a path of names; objects on the way are made."""
    text = text if text.strip() else "{}\n"
    begin, depth, indent = _skip(text, 0), 0, _indent(text)
    while True:
        members, end = _members(text, begin)
        found = next((member for member in members if member.key == path[depth]), None)
        if found is None or depth == len(path) - 1:
            break
        begin, depth = found.value, depth + 1
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    margin = "\n" + indent * (depth + 1)
    written = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", margin)
    if found is not None:
        return text[: found.value] + written + text[found.end :]
    written = f"{margin}{json.dumps(path[depth], ensure_ascii=False)}: {written}"
    if members:
        return f"{text[: members[-1].end]},{written}{text[members[-1].end :]}"
    return f"{text[: begin + 1]}{written}\n{indent * depth}{text[end:]}"


def without_member(text: str, path: Sequence[str]) -> str:
    """Return a text whose object lacks what is at a path of names, and the objects that are empty without it."""
    begin = _skip(text, 0)
    levels: list[tuple[int, list[_Member], int]] = []
    for name in path:
        members, end = _members(text, begin)
        at = [member.key for member in members].index(name)
        levels.append((begin, members, at))
        begin = members[at].value
    while len(levels) > 1 and len(levels[-1][1]) == 1:
        levels.pop()
    begin, members, at = levels[-1]
    if len(members) == 1:
        _, end = _members(text, begin)
        return text[: begin + 1] + text[end:]
    if at == 0:
        return text[: members[0].begin] + text[members[1].begin :]
    return text[: members[at - 1].end] + text[members[at].end :]


def _members(text: str, begin: int) -> tuple[list[_Member], int]:
    """Return the members of the object that begins there, and where it ends: at its brace."""
    found: list[_Member] = []
    at = _skip(text, begin + 1)
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found.append(_Member(key, at, value, end))
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found, at


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _indent(text: str) -> str:
    """Return the white space before the first member of the outermost object; two spaces if it has no line."""
    found = re.match(r"\s*\{[ \t]*\r?\n([ \t]+)\"", text)
    return found[1] if found else "  "

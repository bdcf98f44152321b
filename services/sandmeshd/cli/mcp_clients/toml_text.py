"""A table in the text of a TOML file: what is not changed keeps its bytes, comments included."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from sandmesh.errors import InvalidArgument


def read(text: str) -> dict[str, Any]:
    """Return what a file says.

    Raises:
        InvalidArgument: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"it is not TOML: {error}") from None


def with_table(text: str, key: str, name: str, entry: Mapping[str, object]) -> str:
    """Return a text that has a table at `key.name`, in the place of one that is there."""
    # A string or a list of strings of JSON is one of TOML, too, but for DEL.
    lines = [f"{field} = {json.dumps(value)}".replace("\x7f", "\\u007f") for field, value in entry.items()]
    written = name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name)
    block = "\n".join([f"[{key}.{written}]", *lines, ""])
    if name in read(text).get(key, {}):
        text = without_table(text, key, name)
    return (text.rstrip("\n") + "\n\n" if text.strip() else "") + block


def without_table(text: str, key: str, name: str) -> str:
    """Return a text without the table at `key.name`.

    Raises:
        InvalidArgument: It is not written as a table on separate lines, or has tables below it.
    """
    before = read(text)
    heading = re.compile(
        rf"^\[{re.escape(key)}\.(?:{re.escape(name)}|{re.escape(json.dumps(name))})\][ \t]*$", re.MULTILINE
    )
    found = heading.search(text)
    if found is None:
        raise InvalidArgument(f"its {key}.{name} is not a table under its own heading: change it by hand")
    following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, found.end())
    end = following.start() if following else len(text)
    rest = text[: found.start()].rstrip("\n") + "\n" + ("\n" + text[end:] if following else "")
    rest = rest if rest.strip() else ""
    before[key].pop(name)
    kept = {field: value for field, value in before.items() if field != key or value}
    if {field: value for field, value in read(rest).items() if field != key or value} != kept:
        raise InvalidArgument(f"its {key}.{name} cannot be taken out by itself: change it by hand")
    return rest

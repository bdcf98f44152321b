"""Arguments of tools that have a JSON Schema and no declaration: names and plain types are checked, no more.

A schema library would be in every agent's memory for what a function checks once more when it is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from sandmesh.errors import InvalidArgument

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def read_arguments(tool: str, schema: Mapping[str, Any], arguments: bytes) -> dict[str, Any]:
    """Read a call's arguments; empty means none.

    Raises:
        InvalidArgument: They are no object, or one is missing, unknown or of another type.
    """
    try:
        given = json.loads(arguments or b"{}")
    except ValueError as error:
        raise InvalidArgument(f"the arguments of {tool} are no JSON: {error}", {"tool": tool}) from None
    if not isinstance(given, dict):
        raise InvalidArgument(f"the arguments of {tool} are no JSON object", {"tool": tool})
    read = cast("dict[str, Any]", given)
    problems = list(_problems(schema, read))
    if problems:
        known = ", ".join(schema.get("properties", {}))
        message = f"{tool}({known}) was called with bad arguments: {'; '.join(problems)}"
        raise InvalidArgument(message, {"tool": tool})
    return read


def _problems(schema: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    properties: dict[str, Any] = schema.get("properties", {})
    missing = [f"{name}: it is missing" for name in schema.get("required", ()) if name not in given]
    closed = schema.get("additionalProperties") is False
    unknown = [f"{name}: there is none of that name" for name in given if closed and name not in properties]
    wrong = [f"{name}: it is no {kind}" for name, kind in _wrong(properties, given)]
    return [*missing, *unknown, *wrong]


def _wrong(properties: Mapping[str, Any], given: Mapping[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        kind = properties.get(name, {}).get("type")
        expected = _TYPES.get(kind, ()) if isinstance(kind, str) else ()
        # To Python, True is an integer.
        mistaken = isinstance(value, bool) and bool not in expected
        if expected and (mistaken or not isinstance(value, expected)):
            found.append((name, str(kind)))
    return found

"""Validation of arguments by a JSON Schema, for tools without a declaration: names and plain types only.

A schema library would take memory in every agent, for what a function checks again when it is called.
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
        InvalidArgument: They are not an object, or one is missing, unknown or of the wrong type.
    """
    try:
        parsed = json.loads(arguments or b"{}")
    except ValueError as error:
        raise InvalidArgument(f"the arguments of {tool} are not valid JSON: {error}", {"tool": tool}) from None
    if not isinstance(parsed, dict):
        raise InvalidArgument(f"the arguments of {tool} are not a JSON object", {"tool": tool})
    values = cast("dict[str, Any]", parsed)
    problems = list(_problems(schema, values))
    if problems:
        known = ", ".join(schema.get("properties", {}))
        message = f"{tool}({known}) was called with bad arguments: {'; '.join(problems)}"
        raise InvalidArgument(message, {"tool": tool})
    return values


def _problems(schema: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    properties: dict[str, Any] = schema.get("properties", {})
    missing = [f"{name}: missing" for name in schema.get("required", ()) if name not in values]
    closed = schema.get("additionalProperties") is False
    unknown = [f"{name}: unknown" for name in values if closed and name not in properties]
    wrong = [f"{name}: not of type {kind}" for name, kind in _wrong(properties, values)]
    return [*missing, *unknown, *wrong]


def _wrong(properties: Mapping[str, Any], values: Mapping[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in values.items():
        kind = properties.get(name, {}).get("type")
        expected = _TYPES.get(kind, ()) if isinstance(kind, str) else ()
        # To Python, True is an integer.
        mistaken = isinstance(value, bool) and bool not in expected
        if expected and (mistaken or not isinstance(value, expected)):
            found.append((name, str(kind)))
    return found

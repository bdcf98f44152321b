"""Arguments of calls on files: a JSON object in which names of files are encoded bytes.

A name travels as a string in which each byte that is not UTF-8 stands as a lone surrogate, U+DC80 for 0x80 to U+DCFF
for 0xFF, written \\udcXX in JSON: what Python calls surrogateescape (PEP 383). Every other name is just its text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, ClassVar, TypeVar, cast, get_type_hints

from sandmesh.errors import InvalidArgument


class Arguments:
    """The base of every call's arguments: frozen dataclasses with fields of str, int, bool or None."""

    tool: ClassVar[str]


A = TypeVar("A", bound=Arguments)


def read_arguments(cls: type[A], data: bytes) -> A:
    """Parse arguments from JSON; empty means {}.

    Raises:
        InvalidArgument: It is not an object, or a value is missing, unknown or of the wrong type.
    """
    try:
        parsed: object = json.loads(data or b"{}")
    except ValueError as error:
        raise _bad(cls, f"they are not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise _bad(cls, "they are not a JSON object")
    values = cast("dict[str, Any]", parsed)
    _check(cls, values)
    return cls(**values)


def _check(cls: type[Arguments], values: Mapping[str, Any]) -> None:
    kinds = get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # every subclass is a dataclass
    for name, value in values.items():
        if name not in known:
            raise _bad(cls, f"{name} is unknown; there are {', '.join(known)}")
        if not isinstance(value, kinds[name]) or (isinstance(value, bool) and kinds[name] is not bool):
            raise _bad(cls, f"{name} is {value!r}, which is of the wrong type")
        if isinstance(value, int) and not 0 <= value < 1 << 63:
            raise _bad(cls, f"{name} is {value}: it must be 0 or more")
    missing = [name for name, field in known.items() if field.default is MISSING and name not in values]
    if missing:
        raise _bad(cls, f"{', '.join(missing)} is missing")


def _bad(cls: type[Arguments], problem: str) -> InvalidArgument:
    return InvalidArgument(f"{cls.tool} was called with bad arguments: {problem}", {"tool": cls.tool})


def write_line(value: Mapping[str, Any]) -> bytes:
    """Write one JSON object as a line, with names as they travel."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"

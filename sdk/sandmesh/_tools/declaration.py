"""Tool declarations: one typed class per tool, from which its schema, its dispatch and the SDK's method are made.

A declaration has no behavior. The tool's name is the class's in snake_case, its description the class's docstring, its
parameters the fields. The agent has a handler for each; tools that only a sandbox knows have no class.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from inspect import Signature, cleandoc
from typing import Any, ClassVar, ParamSpec, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.dataclasses import rebuild_dataclass

from sandmesh.errors import InvalidArgument


class Tool:
    """The base of every declaration: `name` and `group` are set by the decorator."""

    name: ClassVar[str]
    group: ClassVar[str]


T = TypeVar("T", bound=Tool)
P = ParamSpec("P")

TOOLS: dict[str, type[Tool]] = {}

PLUMBING = frozenset({"process", "kernel", "mcp"})
"""Groups that every sandbox has and that the SDK's handles use: listed only if they are requested explicitly."""


class _Signature:
    """A class's signature, which exists once the class is built."""

    def __get__(self, _: object, owner: type[Tool]) -> Signature:
        rebuild_dataclass(cast("Any", owner), force=True)
        return cast("Signature", vars(owner)["__signature__"].__get__(None, owner))


@dataclass_transform(field_specifiers=(Field,))
def tool(group: str) -> Callable[[type[T]], type[T]]:
    """Declare a class as a tool of `group`. Values are checked strictly and unknown parameters refused."""

    def decorate(cls: type[T]) -> type[T]:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        cls.group = group
        # Built at its first use: few programs use more than a few.
        config = ConfigDict(extra="forbid", strict=True, defer_build=True)
        dataclass = pydantic_dataclass(config=config, frozen=True)
        made = cast("type[T]", dataclass(cls))
        type.__setattr__(made, "__signature__", _Signature())
        TOOLS[cls.name] = made
        return made

    return decorate


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(TOOLS[name])


def parse(cls: type[T], arguments: bytes) -> T:
    """Parse a declaration's instance from a JSON object in UTF-8; empty means {}.

    Raises:
        InvalidArgument: It is not an object, or a value is missing, unknown or of the wrong type; each is named.
    """
    try:
        parsed: T = _adapter(cls.name).validate_json(arguments or b"{}")
    except ValidationError as error:
        raise InvalidArgument(_explain(cls, error), {"tool": cls.name}) from None
    return parsed


def build(cls: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Build a declaration's instance as its constructor does, but raise the mesh's own exception.

    Raises:
        InvalidArgument: A value is missing, unknown or of the wrong type; the message names each.
    """
    try:
        return cls(*args, **kwargs)
    except ValidationError as error:
        declared = cast("type[Tool]", cls)
        raise InvalidArgument(_explain(declared, error), {"tool": declared.name}) from None


def _explain(cls: type[Tool], error: ValidationError) -> str:
    known = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type]  # every tool is a dataclass
    problems = "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    )
    return f"{cls.name}({known}) was called with bad arguments: {problems}"


def dump(declared: Tool) -> dict[str, Any]:
    """Return an instance's parameters as plain JSON values, without those that equal their defaults."""
    plain: dict[str, Any] = _adapter(declared.name).dump_python(declared, mode="json", exclude_defaults=True)
    return plain


def input_schema(cls: type[Tool]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a tool's parameters."""
    schema = _adapter(cls.name).json_schema()
    schema.pop("description", None)
    schema["title"] = cls.name
    return schema


def description(cls: type[Tool]) -> str:
    """Return a tool's description."""
    return cleandoc(cls.__doc__ or "")

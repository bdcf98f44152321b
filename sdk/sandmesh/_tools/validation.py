"""Validation, parsing and schemas of tool declarations, with pydantic."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from sandmesh._tools.declaration import TOOLS, Param, T, Tool, fork_lock
from sandmesh.errors import InvalidArgument


def constrained(source: Any, param: Param) -> Any:
    """Return a type with a parameter's description and constraints in pydantic's form."""
    return Annotated[source, Field(description=param.description, **param.constraints)]


@cache
def adapter(name: str) -> TypeAdapter[Any]:
    """Return what validates and writes the instances of a tool's declaration."""
    with fork_lock:
        return TypeAdapter(TOOLS[name])


def parse(cls: type[T], arguments: bytes) -> T:
    """Parse a declaration's instance from a JSON object in UTF-8; empty means {}.

    Raises:
        InvalidArgument: It is not an object, or a value is missing, unknown or of the wrong type; each is named.
    """
    try:
        parsed: T = adapter(cls.name).validate_json(arguments or b"{}")
    except ValidationError as error:
        raise explain(cls, error) from None
    return parsed


def explain(cls: type[Tool], error: ValidationError) -> InvalidArgument:
    """Return the mesh's own exception for a validation error; it names each problem."""
    known = ", ".join(field.name for field in fields(cls))  # type: ignore[arg-type]  # every tool is a dataclass
    problems = "; ".join(
        f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    )
    return InvalidArgument(f"{cls.name}({known}) was called with bad arguments: {problems}", {"tool": cls.name})


def input_schema(cls: type[Tool]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a tool's parameters."""
    schema = adapter(cls.name).json_schema()
    schema.pop("description", None)
    schema["title"] = cls.name
    return schema

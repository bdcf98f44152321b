"""The settings of plugins, of the values that a mesh's settings have for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sandmesh.errors import InvalidArgument
from sandmeshd.runtime.settings import nested, variables_of

Own = TypeVar("Own", bound=BaseModel)


def validate(
    noun: str, name: str, cls: type[Own], values: Mapping[str, Any], more: Mapping[str, object] | None = None
) -> Own:
    """Return the settings of a plugin, such as a driver, by its name and settings class.

    `values` has those of all plugins by variable, and `more` fields that have no variable.

    Raises:
        InvalidArgument: One does not fit; the message names the variable and the plugin.
    """
    variables = variables_of(cls)
    configured = {variable: value for variable, value in values.items() if variable in variables}
    try:
        return cls.model_validate({**nested(configured, variables), **(more or {})})
    except ValidationError as error:
        by_path = {one.path: one.name for one in variables.values()}
        problems = "; ".join(
            f"{_variable(problem['loc'], by_path)}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise InvalidArgument(f"settings of the {noun} {name} do not fit: {problems}") from None


def _variable(location: tuple[int | str, ...], by_path: Mapping[tuple[str, ...], str]) -> str:
    """Return the variable of the field where a problem is, with the key inside its value if there is one."""
    parts = tuple(map(str, location))
    for end in range(len(parts), 0, -1):
        if parts[:end] in by_path:
            return ".".join((by_path[parts[:end]], *parts[end:]))
        if end == 1 and parts[0] in by_path.values():
            return ".".join(parts)
    return ".".join(parts)

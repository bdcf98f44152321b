"""Groups of options: a command takes one as a frozen dataclass, and its help lists each field as an option."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

R = TypeVar("R")


def grouped(command: Callable[..., R]) -> Callable[..., R]:
    """Turn each parameter of a command that is a dataclass into one option for each of its fields.

    A field is annotated as an option of Typer is; its default is the option's.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}

    @wraps(command)
    def run(**arguments: Any) -> R:
        values = {name: group(**_pop_fields(group, arguments)) for name, group in groups.items()}
        return command(**arguments, **values)

    own = inspect.signature(command).parameters.values()
    parameters = [item for one in own for item in _parameters(one, hints, groups)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks for
    run.__annotations__ = {}
    return run


def _pop_fields(group: type, arguments: dict[str, Any]) -> dict[str, Any]:
    return {field.name: arguments.pop(field.name) for field in fields(group)}


def _parameters(own: inspect.Parameter, hints: dict[str, Any], groups: dict[str, type]) -> list[inspect.Parameter]:
    group = groups.get(own.name)
    if group is None:
        return [own.replace(annotation=hints.get(own.name, own.annotation), kind=inspect.Parameter.KEYWORD_ONLY)]
    inside = get_type_hints(group, include_extras=True)
    return [_parameter(field, inside[field.name]) for field in fields(group)]


def _parameter(field: Field[Any], hint: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)

"""Tool declarations: one typed class per tool, from which its schema, its dispatch and the SDK's method are made.

A declaration has no behavior. The tool's name is the class's in snake_case, its description the class's docstring, its
parameters the fields. The agent has a handler for each; tools that only a sandbox knows have no class.

Declaring needs no pydantic, which takes longer to import than the rest of the SDK: `validation` needs it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from inspect import Parameter, Signature, cleandoc, currentframe
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar, cast, dataclass_transform

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


fork_lock = threading.RLock()
"""Held while pydantic, which has its own locks, works: a child forked meanwhile would hang on them."""
os.register_at_fork(before=fork_lock.acquire, after_in_parent=fork_lock.release, after_in_child=fork_lock.release)


class Param:
    """The description and constraints of a parameter, in `Annotated`: keywords are those of pydantic's `Field`."""

    def __init__(self, description: str | None = None, **constraints: Any) -> None:
        self.description = description
        self.constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the annotated type."""
        from sandmesh._tools.validation import constrained  # noqa: PLC0415 - pydantic is imported by then

        return handler.generate_schema(constrained(source, self))

    def __repr__(self) -> str:
        """Return its keywords."""
        shown = self.constraints if self.description is None else {"description": self.description, **self.constraints}
        return f"Param({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Tool:
    """The base of every declaration: the decorator sets `name`, `group`, `methods_of` and `place`."""

    name: ClassVar[str]
    group: ClassVar[str]
    methods_of: ClassVar[str]
    """The group whose sandboxes have it as a method."""
    place: ClassVar[str]
    """The file and line of the declaration."""
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Validate the arguments.

        Raises:
            pydantic.ValidationError: A value is missing, unknown or of the wrong type.
        """
        with fork_lock:
            from pydantic_core import ArgsKwargs  # noqa: PLC0415 - programs that call no tool need no pydantic

            from sandmesh._tools.validation import adapter  # noqa: PLC0415 - as above

            adapter(self.name).validator.validate_python(ArgsKwargs(args, kwargs), self_instance=self)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: instances are immutable."""
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        """Refuse: instances are immutable."""
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        """Compare the tools and their parameters."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Hash the parameters, if these are hashable."""
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        """Return the class's name with the parameters."""
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


T = TypeVar("T", bound=Tool)
P = ParamSpec("P")

TOOLS: dict[str, type[Tool]] = {}

PLUMBING = frozenset({"process", "kernel", "mcp", "desktop", "device"})
"""Groups that every sandbox has and that the SDK's handles use: listed only if they are requested explicitly."""


@dataclass_transform(field_specifiers=(field,))
def tool(group: str, *, methods_of: str | None = None) -> Callable[[type[T]], type[T]]:
    """Declare a class as a tool of `group`. Values are checked strictly and unknown parameters refused.

    The boxes that offer its group, or the group `methods_of`, have it as a method.

    Raises:
        ValueError: The tool is declared twice; the message names both places.
    """
    frame = currentframe()
    caller = None if frame is None else frame.f_back
    place = "an unknown place" if caller is None else f"{caller.f_code.co_filename}:{caller.f_lineno}"

    def decorate(cls: type[T]) -> type[T]:
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        cls.group, cls.methods_of, cls.place = group, methods_of or group, place
        before = TOOLS.get(cls.name)
        if before is not None and before.place != place:
            raise ValueError(
                f"the tool {cls.name} is declared twice, at {before.place} and {place}: rename one of them"
            )
        made = dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
        type.__setattr__(made, "__signature__", _signature(made))
        TOOLS[cls.name] = made
        return made

    return decorate


def _signature(cls: type[Tool]) -> Signature:
    fields: dict[str, Any] = vars(cls)["__dataclass_fields__"]
    defaults = ((each, _default(each)) for each in fields.values())
    parameters = [
        Parameter(each.name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=each.type)
        for each, default in defaults
    ]
    return Signature(parameters, return_annotation=None)


def _default(each: Any) -> Any:
    if callable(each.default_factory):
        return each.default_factory()
    return each.default if isinstance(each.default, bool | int | float | str | None) else Parameter.empty


def description(cls: type[Tool]) -> str:
    """Return a tool's description."""
    return cleandoc(cls.__doc__ or "")


def build(cls: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Build a declaration's instance as its constructor does, but raise the mesh's own exception.

    Raises:
        InvalidArgument: A value is missing, unknown or of the wrong type; the message names each.
    """
    with fork_lock:
        from pydantic import ValidationError  # noqa: PLC0415 - as above

        from sandmesh._tools import validation  # noqa: PLC0415 - as above

    try:
        return cls(*args, **kwargs)
    except ValidationError as error:
        raise validation.explain(cast("type[Tool]", cls), error) from None


def dump(declared: Tool) -> dict[str, Any]:
    """Return an instance's parameters as plain JSON values, without those that equal their defaults."""
    with fork_lock:
        from sandmesh._tools.validation import adapter  # noqa: PLC0415 - as above

        plain: dict[str, Any] = adapter(declared.name).dump_python(declared, mode="json", exclude_defaults=True)
    return plain

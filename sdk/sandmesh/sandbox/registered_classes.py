"""The classes of sandboxes that this program registered, and their definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import AlreadyExists
from sandmesh.inputs import SandboxType

_SHIPPED = ("base", "filesystem", "dummy")


@dataclass(frozen=True)
class SandboxConfig:
    """What a class of sandboxes was registered with."""

    image_name: str
    sandbox_type: SandboxType
    resource_limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    security_level: str = "medium"
    timeout: float | None = 60
    """Seconds that a call of a tool may run at most; None: no bound."""

    description: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    runtime_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mcp_config: Mapping[str, Any] | None = field(default=None, repr=False)


class Registered:
    """Classes with what they were registered with: of one type at most one that blocks, and its async twin."""

    def __init__(self) -> None:
        self.configs: dict[type, SandboxConfig] = {}
        self._classes: dict[tuple[str, bool], type] = {}
        self._definitions: dict[str, pb.TemplateDefinition] = {}

    def add(self, made: type, config: SandboxConfig, definition: pb.TemplateDefinition | None) -> None:
        """Add a class; one that was defined again, as in a notebook, takes the place of its former self.

        Raises:
            AlreadyExists: Another class has the type, or its twin says something else of it.
        """
        name, is_async = str(config.sandbox_type), _is_async(made)
        there = self._classes.get((name, is_async))
        again = there is not None and _same(there, made)
        shipped = definition is not None and name in _SHIPPED
        if shipped or (there is not None and not again):
            other = "the mesh" if there is None else there.__qualname__
            message = f"the type {name!r} is {other}'s: give {made.__qualname__} another"
            raise AlreadyExists(message, {"sandbox_type": name})
        twin = self._classes.get((name, not is_async))
        if twin is not None and definition is not None and not again and self._definitions.get(name) != definition:
            message = f"{made.__qualname__} says something else of the type {name!r} than {twin.__qualname__} does"
            raise AlreadyExists(message, {"sandbox_type": name})
        if there is not None:
            self.configs.pop(there, None)
        self.configs[made] = config
        self._classes[name, is_async] = made
        if definition is not None:
            self._definitions[name] = definition

    def type_of(self, made: type) -> str | None:
        """Give the type that a class, or the nearest one above it, was registered with."""
        found = next((self.configs[one] for one in made.__mro__ if one in self.configs), None)
        return None if found is None else str(found.sandbox_type)

    def class_of(self, name: str, *, is_async: bool = False) -> type | None:
        """Give the class of a type."""
        return self._classes.get((name, is_async))

    def definition_of(self, name: str) -> pb.TemplateDefinition | None:
        """Give the definition of a type that is no shipped one."""
        return self._definitions.get(name)

    def is_from(self, name: str, module: str) -> bool:
        """Say whether a class of a type was defined in a module or below it."""
        classes = [self._classes.get((name, is_async)) for is_async in (False, True)]
        return any(made is not None and f"{made.__module__}.".startswith(f"{module}.") for made in classes)

    def definitions(self) -> list[pb.TemplateDefinition]:
        """Give every definition."""
        return list(self._definitions.values())


def _is_async(made: type) -> bool:
    return any(one.__name__ == "SandboxAsync" and one.__module__ == "sandmesh.sandbox.boxes" for one in made.__mro__)


def _same(one: type, other: type) -> bool:
    return one is other or (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


# The one registry of a process. Registering by decorator is the interface that users come with: there is nobody who
# could pass a registry to a class statement. SandboxRegistry alone writes it; boxes and extensions read it.
_registered = Registered()


def registered() -> Registered:
    """Give the registry of this process."""
    return _registered

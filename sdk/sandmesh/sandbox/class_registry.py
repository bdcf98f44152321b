"""The registry of this program's sandbox classes and their template definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import AlreadyExists
from sandmesh.inputs import SandboxType
from sandmesh.shared.sandbox_types import SANDBOX_TYPES


@dataclass(frozen=True)
class SandboxConfig:
    """The configuration that a sandbox class was registered with."""

    image_name: str
    sandbox_type: SandboxType
    resource_limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    security_level: str = "medium"
    timeout: float | None = 60
    """The most seconds that a tool call may run; None: no limit."""

    description: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    runtime_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mcp_config: Mapping[str, Any] | None = field(default=None, repr=False)
    system: tuple[str, ...] = ()
    """Debian packages of its sandboxes."""

    requirements: tuple[str, ...] = ()
    """Python packages of its sandboxes."""

    environments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Training environments by name."""

    scratch: tuple[str, ...] = ()
    """Directories at the root that are file systems in memory."""

    idle_timeout: float | None = None
    """Seconds without a use after which `on_idle` is done; None: the mesh's default."""

    on_idle: Literal["release", "pause"] | None = None
    """What is done then; None: the mesh's default."""


class ClassRegistry:
    """Sandbox classes with their configurations: for each type at most one sync class and its async twin."""

    def __init__(self) -> None:
        self.configs: dict[type, SandboxConfig] = {}
        self._classes: dict[tuple[str, bool], type] = {}
        self._definitions: dict[str, pb.TemplateDefinition] = {}

    def add(self, made: type, config: SandboxConfig, definition: pb.TemplateDefinition | None) -> None:
        """Add a class; redefining it, as in a notebook, replaces the former definition.

        Raises:
            AlreadyExists: Another class has the type, or the class's twin has another definition.
        """
        name, is_async = str(config.sandbox_type), _is_async(made)
        there = self._classes.get((name, is_async))
        again = there is not None and _same(there, made)
        builtin = definition is not None and name in SANDBOX_TYPES
        if builtin or (there is not None and not again):
            other = "the mesh" if there is None else there.__qualname__
            message = f"the type {name!r} belongs to {other}: choose another for {made.__qualname__}"
            raise AlreadyExists(message, {"sandbox_type": name})
        twin = self._classes.get((name, not is_async))
        if twin is not None and definition is not None and not again and self._definitions.get(name) != definition:
            message = f"{made.__qualname__} defines the type {name!r} differently than {twin.__qualname__} does"
            raise AlreadyExists(message, {"sandbox_type": name})
        if there is not None:
            self.configs.pop(there, None)
        self.configs[made] = config
        self._classes[name, is_async] = made
        if definition is not None:
            self._definitions[name] = definition

    def type_of(self, made: type) -> str | None:
        """Return the type that a class, or its nearest registered base, was registered with."""
        found = next((self.configs[base] for base in made.__mro__ if base in self.configs), None)
        return None if found is None else str(found.sandbox_type)

    def class_of(self, name: str, *, is_async: bool = False) -> type | None:
        """Return the class of a type."""
        return self._classes.get((name, is_async))

    def definition_of(self, name: str) -> pb.TemplateDefinition | None:
        """Return the template definition of a type; None for a built-in or unknown type."""
        return self._definitions.get(name)

    def is_from(self, name: str, module: str) -> bool:
        """Return whether a class of a type was defined in a module or its submodules."""
        classes = [self._classes.get((name, is_async)) for is_async in (False, True)]
        return any(made is not None and f"{made.__module__}.".startswith(f"{module}.") for made in classes)

    def definitions(self) -> list[pb.TemplateDefinition]:
        """Return all template definitions."""
        return list(self._definitions.values())


def _is_async(made: type) -> bool:
    return any(base.__name__ == "SandboxAsync" and base.__module__ == "sandmesh.sandbox.boxes" for base in made.__mro__)


def _same(one: type, other: type) -> bool:
    return one is other or (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


# One registry per process: classes register by decorator, and nothing could pass a registry to a class statement.
# Only SandboxRegistry writes it; boxes and extensions read it.
_registry = ClassRegistry()


def class_registry() -> ClassRegistry:
    """Return the registry of this process."""
    return _registry

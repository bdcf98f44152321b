"""Registration of a user's own sandbox classes: a class's configuration becomes the template of its sandboxes."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from sandmesh.errors import InvalidArgument
from sandmesh.inputs import SandboxType
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.builtin import builtin_classes
from sandmesh.sandbox.class_registry import SandboxConfig, class_registry
from sandmesh.sandbox.sync import Sandbox
from sandmesh.shared.environment import Environment
from sandmesh.shared.sandbox_types import DEFAULT_TYPE, SANDBOX_TYPES
from sandmesh.templates.definitions import check_type, write_definition
from sandmesh.templates.sandbox_tools import InsideTool

C = TypeVar("C", bound=type[Sandbox] | type[SandboxAsync])

IMAGE_VARIABLES = ("SANDMESH_IMAGE_REGISTRY", "SANDMESH_IMAGE_NAMESPACE", "SANDMESH_IMAGE_TAG")


def build_image_uri(
    image_name: str,
    tag: str | None = None,
    registry: str | None = None,
    namespace: str | None = None,
    arm64_compatible: bool = True,
) -> str:
    """Return an image's full name: `registry/namespace/name:tag`.

    The defaults are SANDMESH_IMAGE_REGISTRY, SANDMESH_IMAGE_NAMESPACE and SANDMESH_IMAGE_TAG, else no registry,
    "sandmesh" and "latest". An image that is not `arm64_compatible` has another tag on such machines.

    Raises:
        InvalidArgument: The name is empty.
    """
    if not image_name.strip():
        raise InvalidArgument("an image must have a name", {"argument": "image_name"})
    defaults = [os.environ.get(variable, "") for variable in IMAGE_VARIABLES]
    host = (defaults[0] if registry is None else registry).strip().strip("/")
    space = (defaults[1] or "sandmesh") if namespace is None else namespace
    version = tag or defaults[2] or "latest"
    if not arm64_compatible and platform.machine().lower() in ("aarch64", "arm64"):
        version += "-arm64"
    return "/".join(part for part in (host, space.strip("/"), f"{image_name}:{version}") if part)


class Registration(TypedDict, total=False):
    """The optional configuration of a class; each field is enforced, or its sandboxes are refused."""

    resource_limits: Mapping[str, Any] | None
    """The largest limits of its sandboxes: "memory", "cpu", "pids", "file_size", "disk"."""

    security_level: str
    """"low", "medium" (the default) or "high": no network except what its template names."""

    timeout: float | None
    """The most seconds that a tool call may run, 60 by default; None: no limit."""

    description: str
    """What its sandboxes are for."""

    environment: Mapping[str, str] | None
    """Environment variables of user code."""

    runtime_config: Mapping[str, Any] | None
    """Settings of a single runtime, by its own names."""

    mcp_config: Mapping[str, Any] | None
    """MCP servers of its sandboxes, as `add_mcp_servers` takes them; they start when they are needed."""

    system: Sequence[str] | None
    """Debian packages of its sandboxes, as ["ffmpeg"]; the bubblewrap driver has them once `sandmesh build` ran."""

    requirements: Sequence[str] | None
    """Python packages of its sandboxes besides those of its base, pinned, as ["textarena==0.7.4"]."""

    environments: Mapping[str, type[Environment] | str] | None
    """Training environments by name: classes of this program, or "module:Class" of an installed package."""

    scratch: Sequence[str] | None
    """Directories at the root, as ["/app"], where each of its sandboxes has its own file system in memory."""

    idle_timeout: float | None
    """Seconds without a use after which `on_idle` is done, where who creates one has no `idle_timeout`."""

    on_idle: Literal["release", "pause"] | None
    """What is done then, where who creates one does not say; it needs an `idle_timeout`."""


class SandboxRegistry:
    """The sandbox classes of this program, by type.

        @SandboxRegistry.register("runtime-sandbox-base", sandbox_type="reports", resource_limits={"memory": "1g"})
        class ReportSandbox(BaseSandbox): ...

    The class is registered on a private mesh, and on any mesh that this program administers, before its first sandbox
    is created; other meshes must be started with it (`sandmesh up --extension FILE`).
    """

    @staticmethod
    def register(image_name: str, sandbox_type: str | SandboxType, **options: Unpack[Registration]) -> Callable[[C], C]:
        """Register the decorated class. The image need not exist yet.

        Raises:
            InvalidArgument: A value does not fit, or the class is not a sandbox class.
            AlreadyExists: The type belongs to another class.
        """
        for name in options:
            if name not in Registration.__annotations__:
                raise TypeError(
                    f"register() has no argument {name!r}: choose from {', '.join(Registration.__annotations__)}"
                )
        kind = check_type(str(sandbox_type) if isinstance(sandbox_type, SandboxType) else sandbox_type)
        config = SandboxConfig(
            image_name=image_name,
            sandbox_type=_member(kind),
            resource_limits=dict(options.get("resource_limits") or {}),
            security_level=options.get("security_level", "medium"),
            timeout=options.get("timeout", 60),
            description=options.get("description", ""),
            environment=dict(options.get("environment") or {}),
            runtime_config=dict(options.get("runtime_config") or {}),
            mcp_config=options.get("mcp_config"),
            system=tuple(options.get("system") or ()),
            requirements=tuple(options.get("requirements") or ()),
            environments=dict(options.get("environments") or {}),
            scratch=tuple(options.get("scratch") or ()),
            idle_timeout=options.get("idle_timeout"),
            on_idle=options.get("on_idle"),
        )
        return lambda made: _register(made, config)

    @staticmethod
    def get_config(target_class: type) -> SandboxConfig | None:
        """Return the configuration of a class, None if it is not registered."""
        return class_registry().configs.get(target_class)

    @staticmethod
    def get_image(target_class: type) -> str | None:
        """Return the image of a class, None if it is not registered."""
        config = class_registry().configs.get(target_class)
        return None if config is None else config.image_name

    @staticmethod
    def get_classes_by_type(sandbox_type: str | SandboxType) -> type | None:
        """Return the class of a type: the sync one, else the async one."""
        name = str(sandbox_type)
        return class_registry().class_of(name) or class_registry().class_of(name, is_async=True)

    @staticmethod
    def list_all_sandboxes() -> dict[type, SandboxConfig]:
        """Return every class with its configuration, the built-in ones included."""
        return dict(class_registry().configs)

    @staticmethod
    def get_config_by_type(sandbox_type: str | SandboxType) -> SandboxConfig | None:
        """Return the configuration of a type's class, None if it is not registered."""
        found = SandboxRegistry.get_classes_by_type(sandbox_type)
        return None if found is None else class_registry().configs.get(found)

    @staticmethod
    def get_image_by_type(sandbox_type: str | SandboxType) -> str | None:
        """Return the image of a type's class, None if it is not registered."""
        config = SandboxRegistry.get_config_by_type(sandbox_type)
        return None if config is None else config.image_name


def _member(kind: str) -> SandboxType:
    known = SandboxType.known(kind)
    return known if isinstance(known, SandboxType) else SandboxType.add_member(kind.upper().replace("-", "_"), kind)


def _register(made: C, config: SandboxConfig) -> C:
    if not isinstance(made, type) or not issubclass(made, Sandbox | SandboxAsync):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise InvalidArgument(f"a registered class must derive from Sandbox or SandboxAsync, not {made!r}")
    tools = [found for found in _attributes(made).values() if isinstance(found, InsideTool)]
    definition = write_definition(
        {
            "name": str(config.sandbox_type),
            "description": config.description,
            "extends": _builtin_base(made),
            "image": config.image_name,
            "limits": config.resource_limits,
            "security_level": config.security_level,
            "timeout": config.timeout,
            "environment": config.environment,
            "runtime_config": config.runtime_config,
            "mcp_config": config.mcp_config,
            "system": config.system,
            "requirements": config.requirements,
            "environments": config.environments,
            "scratch": config.scratch,
            "idle_timeout": config.idle_timeout,
            "on_idle": config.on_idle,
        },
        [tool.definition() for tool in tools],
    )
    class_registry().add(made, config, definition)
    return made


def _attributes(made: type) -> dict[str, object]:
    found: dict[str, object] = {}
    for one in reversed(made.__mro__):
        found.update(vars(one))
    return found


def _builtin_base(made: type) -> str:
    """Return the type of the nearest built-in class above; empty for the default type."""
    types = {cls: name for name in SANDBOX_TYPES for cls in builtin_classes(name)}
    name = next((types[base] for base in made.__mro__ if base in types), DEFAULT_TYPE)
    return name if SANDBOX_TYPES[name] and name != DEFAULT_TYPE else ""


def _register_builtin() -> None:
    for name in SANDBOX_TYPES:
        image = build_image_uri(f"runtime-sandbox-{name}") if SANDBOX_TYPES[name] else ""
        for made in builtin_classes(name):
            class_registry().add(made, SandboxConfig(image, SandboxType(name), timeout=None), None)


_register_builtin()

"""The service of sessions and its factory, with the old arguments, whose boxes have the old names."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import sandmesh
from sandmesh import SandboxType
from sandmesh.compat.agentscope_runtime.boxes import variant

B = TypeVar("B", sandmesh.BaseSandbox, sandmesh.BaseSandboxAsync)


class SandboxService(sandmesh.SandboxService):
    """Returns the same boxes, with their state, for the same ids; these have the old names of methods.

    With `drain_on_stop`, the default, `stop` ends only the sessions that this service connected.
    """

    def __init__(
        self,
        base_url: str | None = None,
        bearer_token: str | None = None,
        drain_on_stop: bool = True,
        **options: Any,
    ) -> None:
        """Configure the mesh, as for a box."""
        super().__init__(base_url, bearer_token, **options)
        self.base_url = base_url
        self.bearer_token = bearer_token
        self.drain_on_stop = drain_on_stop

    async def stop(self) -> None:
        """Stop renewing, and end the sessions unless `drain_on_stop` is off."""
        try:
            if self.drain_on_stop:
                await self._drain()
        finally:
            await super().stop()

    async def _drain(self) -> None:
        if self._sessions is not None:
            await self.release_all_async()
        if self._portal_sessions is not None:
            await asyncio.to_thread(self.release_all)

    def connect(
        self,
        session_id: str,
        user_id: str | None = None,
        sandbox_types: Sequence[str | SandboxType] | None = None,
    ) -> list[sandmesh.BaseSandbox]:
        """Return the session's boxes of these types, by default one of the type base."""
        return super().connect(session_id, user_id, _types(sandbox_types))

    async def connect_async(
        self,
        session_id: str,
        user_id: str | None = None,
        sandbox_types: Sequence[str | SandboxType] | None = None,
    ) -> list[sandmesh.BaseSandboxAsync]:
        """Return the session's boxes of these types for this event loop."""
        return await super().connect_async(session_id, user_id, _types(sandbox_types))

    def _variant(self, made: type[B]) -> type[B]:
        return variant(made)


class SandboxServiceFactory:
    """Creates services from arguments, else from variables: SANDBOX_BACKEND, SANDBOX_DEFAULT_BASE_URL, ..."""

    _constructors: ClassVar[dict[str, Callable[..., Any]]] = {"default": SandboxService}

    @classmethod
    def register_backend(cls, backend_type: str, constructor: Callable[..., Any]) -> None:
        """Register the constructor of another kind of service, whose variables are SANDBOX_<KIND>_<ARGUMENT>."""
        cls._constructors[backend_type.lower()] = constructor

    @classmethod
    async def create(cls, backend_type: str | None = None, **kwargs: Any) -> Any:
        """Create a service; one of this module is started, starting it again changes nothing.

        Arguments that the constructor does not have are ignored.

        Raises:
            ValueError: No service of this kind is registered.
            MeshUnavailable: Nothing responds there.
        """
        kind = (backend_type or os.environ.get("SANDBOX_BACKEND") or "default").lower()
        constructor = cls._constructors.get(kind)
        if constructor is None:
            raise ValueError(
                f"Unsupported backend type: {kind}; register it, or choose from {sorted(cls._constructors)}"
            )
        made: object = constructor(**_accepted(constructor, {**_from_environment(kind), **kwargs}))
        if isinstance(made, SandboxService):
            await made.start()
        return made


def _types(sandbox_types: Sequence[str | SandboxType] | None) -> Sequence[str | SandboxType]:
    return (SandboxType.BASE,) if sandbox_types is None else sandbox_types


def _from_environment(kind: str) -> dict[str, str]:
    prefix = f"SANDBOX_{kind.upper()}_"
    return {name.removeprefix(prefix).lower(): value for name, value in os.environ.items() if name.startswith(prefix)}


def _accepted(constructor: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    # A service of this module would refuse an unknown option.
    if constructor is SandboxService:
        known = {"base_url", "bearer_token", "drain_on_stop", "timeout", "ttl", "idle_timeout", "ca_cert"}
        return {name: value for name, value in arguments.items() if name in known}
    parameters = inspect.signature(constructor).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(arguments)
    return {name: value for name, value in arguments.items() if name in parameters}

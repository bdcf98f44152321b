"""The handlers of services by method, for what calls them without a gRPC server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import grpc

from sandmesh.errors import MethodNotFound
from sandmeshd.runtime.rpc.interceptors import Handler
from sandmeshd.runtime.rpc.server import ServiceRegistration


class HandlerCollector:
    """What generated code takes for a server: it keeps the handlers."""

    def __init__(self, services: Sequence[ServiceRegistration]) -> None:
        self._generic: list[grpc.GenericRpcHandler] = []
        self._found: dict[str, Handler] = {}
        for service in services:
            service.add(cast("grpc.aio.Server", self))

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Keep a service's handlers."""
        self._generic += handlers

    def add_registered_method_handlers(self, service: str, handlers: object) -> None:
        """Accept registered handlers: the same came generically."""

    def find(self, method: str) -> Handler:
        """Return the handler of a method, /package.Service/Method.

        Raises:
            MethodNotFound: No service has it.
        """
        found = self._found.get(method)
        if found is None:
            # Only what exists is kept: no caller can fill this by making names up.
            found = self._found[method] = self._look(method)
        return found

    def _look(self, method: str) -> Handler:
        details = cast("grpc.HandlerCallDetails", _Details(method))
        for generic in self._generic:
            found = generic.service(details)
            if found is not None:
                return found
        raise MethodNotFound(f"{method} is not a method of this process", {"method": method})


class _Details:
    def __init__(self, method: str) -> None:
        self.method = method
        self.invocation_metadata = ()

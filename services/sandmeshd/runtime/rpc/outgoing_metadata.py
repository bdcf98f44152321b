"""What a service says of each RPC that it sends, as metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import grpc

MakeEntry = Callable[[str], tuple[str, str] | None]
"""Gives a key with its value for an RPC of a method, or nothing."""


def metadata_interceptors(make_entry: MakeEntry) -> list[grpc.aio.ClientInterceptor]:
    """Return interceptors that add metadata to a channel's RPCs whose request is one message."""
    return [_Unary(make_entry), _StreamInterceptor(make_entry)]


class _Interceptor:
    def __init__(self, make_entry: MakeEntry) -> None:
        self._make_entry = make_entry

    def with_entry(self, details: Any) -> grpc.aio.ClientCallDetails:
        found = self._make_entry(details.method.decode() if isinstance(details.method, bytes) else str(details.method))
        if found is None:
            return cast("grpc.aio.ClientCallDetails", details)
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        metadata.add(*found)
        return grpc.aio.ClientCallDetails(
            cast("Any", details.method), details.timeout, metadata, details.credentials, details.wait_for_ready
        )


class _Unary(_Interceptor, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self, continuation: Callable[[grpc.aio.ClientCallDetails, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Add to the metadata."""
        return await continuation(self.with_entry(client_call_details), request)


class _StreamInterceptor(_Interceptor, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: Callable[[grpc.aio.ClientCallDetails, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Add to the metadata."""
        return await continuation(self.with_entry(client_call_details), request)

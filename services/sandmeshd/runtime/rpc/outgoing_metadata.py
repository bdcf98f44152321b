"""What a service says of each RPC that it sends, as metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import grpc

MakeEntries = Callable[[str], Sequence[tuple[str, str]]]
"""Gives keys with their values for an RPC of a method."""


def metadata_interceptors(make_entries: MakeEntries) -> list[grpc.aio.ClientInterceptor]:
    """Return interceptors that add metadata to a channel's RPCs whose request is one message."""
    return [_Unary(make_entries), _StreamInterceptor(make_entries)]


class _Interceptor:
    def __init__(self, make_entries: MakeEntries) -> None:
        self._make_entries = make_entries

    def with_entries(self, details: Any) -> grpc.aio.ClientCallDetails:
        found = self._make_entries(
            details.method.decode() if isinstance(details.method, bytes) else str(details.method)
        )
        if not found:
            return cast("grpc.aio.ClientCallDetails", details)
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        for key, value in found:
            metadata.add(key, value)
        return grpc.aio.ClientCallDetails(
            cast("Any", details.method), details.timeout, metadata, details.credentials, details.wait_for_ready
        )


class _Unary(_Interceptor, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self, continuation: Callable[[grpc.aio.ClientCallDetails, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Add to the metadata."""
        return await continuation(self.with_entries(client_call_details), request)


class _StreamInterceptor(_Interceptor, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: Callable[[grpc.aio.ClientCallDetails, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Add to the metadata."""
        return await continuation(self.with_entries(client_call_details), request)

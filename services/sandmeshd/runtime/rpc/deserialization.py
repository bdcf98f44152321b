"""Requests that are not messages of their RPC: gRPC answers them with UNKNOWN, and logs a traceback for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from sandmesh.errors import InvalidArgument


@dataclass(frozen=True)
class Malformed:
    """Stands for a request that could not be parsed, until the RPC's interceptors have admitted its client."""

    size: int


class Messages(Protocol):
    """The requests of a stream."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over them."""
        ...


class WellFormed:
    """The requests of a stream; the first malformed one ends it.

    It is not a generator: a reader that is cancelled while it waits may read on.
    """

    def __init__(self, messages: Messages, method: str) -> None:
        self._messages = aiter(messages)
        self._method = method

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the requests that are left."""
        return self

    async def __anext__(self) -> Any:
        """Return the next request.

        Raises:
            InvalidArgument: It could not be parsed.
        """
        message = await anext(self._messages)
        check_form(message, self._method)
        return message


def tolerant(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """Return a deserializer that returns `Malformed` where the other raises DecodeError."""
    if deserialize is None:
        return None

    def run(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return Malformed(len(data))

    return run


def check_form(request: object, method: str) -> None:
    """Check that a request could be parsed.

    Raises:
        InvalidArgument: It could not.
    """
    if isinstance(request, Malformed):
        raise _refusal(request.size, method)


def parse(deserialize: Callable[[bytes], Any], data: bytes, method: str) -> Any:
    """Return a request.

    Raises:
        InvalidArgument: It cannot be parsed.
    """
    try:
        return deserialize(data)
    except DecodeError:
        raise _refusal(len(data), method) from None


def _refusal(size: int, method: str) -> InvalidArgument:
    return InvalidArgument(f"the {size} bytes of the request are not a message of {method}", {"method": method})

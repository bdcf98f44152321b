"""The ids that requests name, in the context of the log's lines."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import structlog
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

IDS = ("sandbox_id", "session_id", "session_key", "call_id")


def bind_ids(request: Message) -> None:
    """Put the ids that a request names into the log's context, for the rest of its RPC."""
    names = _id_fields(request.DESCRIPTOR)
    if names:
        found = {name: getattr(request, name) for name in names}
        structlog.contextvars.bind_contextvars(**{name: value for name, value in found.items() if value})


@cache
def _id_fields(descriptor: Descriptor) -> tuple[str, ...]:
    return tuple(name for name in IDS if name in descriptor.fields_by_name)


@contextmanager
def ids_of(request: Message) -> Generator[None]:
    """Put the ids that a request names into the log's context for a block."""
    names = _id_fields(request.DESCRIPTOR)
    found = {name: getattr(request, name) for name in names}
    with structlog.contextvars.bound_contextvars(**{name: value for name, value in found.items() if value}):
        yield

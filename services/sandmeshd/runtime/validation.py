"""Checks the (required) option of options.proto on a request and everything in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from sandmesh.api.options.v1 import options_pb2
from sandmesh.errors import InvalidArgument


def require(message: Message) -> None:
    """Check that every field marked (required) is set, also in the messages inside.

    Raises:
        InvalidArgument: One is not; `facts["field"]` is its path, as "slots[0].spec.template".
    """
    _require(message, "")


def _require(message: Message, path: str) -> None:
    # Descriptors are of another class in each implementation of protobuf.
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    for field in fields:
        name = f"{path}{field.name}"
        if field.GetOptions().Extensions[options_pb2.required] and not _is_set(message, field):
            raise InvalidArgument(f"{name} must be set", {"field": name})
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner_path, inner in _inside(message, field, name):
                _require(inner, f"{inner_path}.")


def _is_set(message: Message, field: Any) -> bool:
    # ListFields leaves out what is empty, zero or unset, whatever the field's kind.
    return any(present.number == field.number for present, _ in message.ListFields())


def _inside(message: Message, field: Any, name: str) -> Iterable[tuple[str, Message]]:
    value = getattr(message, field.name)
    if field.message_type.GetOptions().map_entry:
        entries = [(f"{name}[{key!r}]", value[key]) for key in value]
        return [(path, entry) for path, entry in entries if isinstance(entry, Message)]
    if field.is_repeated:
        return [(f"{name}[{index}]", entry) for index, entry in enumerate(value)]
    return [(name, value)] if message.HasField(field.name) else []

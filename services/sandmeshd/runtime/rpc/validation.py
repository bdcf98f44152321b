"""Checks the (required) option of options.proto on a request and everything in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
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


@dataclass(frozen=True)
class _FieldRule:
    """What a field is looked at for: it must be set, or what is inside may have such fields."""

    field: Any
    required: bool
    deep: bool


def _require(message: Message, path: str) -> None:
    for rule in _rules(message.DESCRIPTOR):
        name = f"{path}{rule.field.name}"
        if rule.required and not _is_set(message, rule.field):
            raise InvalidArgument(f"{name} must be set", {"field": name})
        if rule.deep:
            for inner_path, inner in _inside(message, rule.field, name):
                _require(inner, f"{inner_path}.")


@cache
def _rules(descriptor: Any) -> tuple[_FieldRule, ...]:
    # Descriptors are of another class in each implementation of protobuf.
    # Reading options takes longer than all the rest.
    found = [_FieldRule(field, _is_required(field), _is_deep(field, frozenset())) for field in descriptor.fields]
    return tuple(rule for rule in found if rule.required or rule.deep)


def _is_required(field: Any) -> bool:
    return bool(field.GetOptions().Extensions[options_pb2.required])


def _is_deep(field: Any, above: frozenset[str]) -> bool:
    """Return whether any message inside has a required field; a type inside itself says nothing new of it."""
    inner = field.message_type if field.type == FieldDescriptor.TYPE_MESSAGE else None
    if inner is None or inner.full_name in above:
        return False
    below = above | {inner.full_name}
    return any(_is_required(one) or _is_deep(one, below) for one in inner.fields)


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

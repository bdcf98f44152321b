"""What a log may show of messages and texts: that a secret was set, never what it was."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from sandmesh.api.options.v1 import options_pb2

HIDDEN = "[secret]"

_TOKEN = re.compile(r"(smesh_[a-z2-7]{16})_[a-z2-7]+|(e2b_[0-9a-f]{16})[0-9a-f]{24}")


def shown(message: Message) -> dict[str, Any]:
    """Return a message as JSON values, with the fields that are marked (secret) hidden, wherever in it they are."""
    copy = type(message)()
    copy.CopyFrom(message)
    _hide(copy)
    return dict(MessageToDict(copy, preserving_proto_field_name=True))


def clear_secrets(message: Message) -> None:
    """Clear the fields of a message that are marked (secret), wherever in it they are."""
    _visit(message, lambda holder, field, _: holder.ClearField(field.name))


def _hide(message: Message) -> None:
    _visit(message, _hide_field)


def _visit(message: Message, visit: Callable[[Message, Any, Any], None]) -> None:
    for field, value in message.ListFields():
        if field.GetOptions().Extensions[options_pb2.secret]:
            visit(message, field, value)
        elif field.message_type is not None:
            for inner in _messages(field, value):
                _visit(inner, visit)


def _hide_field(message: Message, field: Any, value: Any) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for key in list(value):
            value[key] = HIDDEN
    elif field.type in (field.TYPE_STRING, field.TYPE_BYTES) and not field.is_repeated:
        setattr(message, field.name, HIDDEN if field.type == field.TYPE_STRING else HIDDEN.encode())
    else:
        message.ClearField(field.name)


def _messages(field: Any, value: Any) -> list[Message]:
    if field.message_type.GetOptions().map_entry:
        return [inner for inner in value.values() if isinstance(inner, Message)]
    return list(value) if field.is_repeated else [value]


def without_secrets(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hide secrets in a log line: marked fields of messages, and whatever has a token's form. A structlog processor."""
    del logger, name
    for key, value in event.items():
        event[key] = _clean(value)
    return event


def _clean(value: Any) -> Any:
    if isinstance(value, Message):
        return _clean(shown(value))
    if isinstance(value, str):
        return _TOKEN.sub(rf"\1\2_{HIDDEN}", value)
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]  # any
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]  # any
    return value

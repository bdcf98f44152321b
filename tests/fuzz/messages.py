"""Random messages of protobuf, from their descriptors alone, and their bytes: whole, changed, or of no message."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fuzz.mutation import TEXTS, mutated, number, text

Known = Callable[[Random, FieldDescriptor], Any]
"""Returns a value that means something in the world under test, None for any."""

_RANGES: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_FLOATS: Final = (0.0, -0.0, 1.5, -1.0, 1e308, float("inf"), float("-inf"), float("nan"))
MALFORMED: Final = (
    *(b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0f", b"\x00\x00", b"\x0a\x05a", b"\x0b", b"\x0c", b"\x0d\x01", b"\x09"),
    *(b"\x0b" * 200, b"\x0a" + b"\x80" * 10 + b"\x01", b"\x0a\x02\xff\xfe", b"\xf8\xff\xff\xff\xff\x01\x01"),
)  # fmt: skip
"""What no message begins with: lengths beyond the end, groups without one, text that is not UTF-8."""


def nothing_known(random: Random, field: FieldDescriptor) -> Any:
    """Know nothing of the world."""
    del random, field


class Filler:
    """Fills messages with values of `known`, or of any kind."""

    def __init__(self, random: Random, known: Known = nothing_known, share: float = 0.7) -> None:
        self._random = random
        self._known = known
        self._share = share

    def fill(self, message: Message, depth: int = 4) -> None:
        """Fill some of a message's fields."""
        for field in message.DESCRIPTOR.fields:
            if self._random.random() > self._share or (field.message_type is not None and not depth):
                continue
            if field.is_repeated:
                self._fill_repeated(message, field, depth)
            elif field.message_type is not None:
                inner = getattr(message, field.name)
                inner.SetInParent()
                self.fill(inner, depth - 1)
            else:
                setattr(message, field.name, self._scalar(field))

    def _fill_repeated(self, message: Message, field: Any, depth: int) -> None:
        items = getattr(message, field.name)
        kind = field.message_type
        for _ in range(self._random.choice((0, 1, 1, 2, 5))):
            if kind is None:
                items.append(self._scalar(field))
            elif kind.GetOptions().map_entry:
                key, inner = kind.fields_by_name["key"], kind.fields_by_name["value"]
                if inner.message_type is None:
                    items[self._scalar(key)] = self._scalar(inner)
                else:
                    self.fill(items[self._scalar(key)], depth - 1)
            else:
                self.fill(items.add(), depth - 1)

    def _scalar(self, field: Any) -> Any:
        random = self._random
        found = self._known(random, field)
        if found is not None:
            return found
        kind = field.cpp_type
        if kind in _RANGES:
            least, most = _RANGES[kind]
            return max(least, min(most, number(random)))
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return random.choice((random.choice(_numbers(field)), 9999, -1))
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
            return random.choice(_FLOATS)
        return random.randbytes(random.choice((0, 1, 40))) if field.type == FieldDescriptor.TYPE_BYTES else text(random)


def _numbers(field: Any) -> list[int]:
    return [each.number for each in field.enum_type.values]


def wire(random: Random, message: Message) -> bytes:
    """Return the bytes of a message: as they are, or changed, or none of a message."""
    data = message.SerializeToString()
    chance = random.random()
    if chance < 0.6:
        return data
    if chance < 0.85:
        return mutated(random, data)
    if chance < 0.95:
        return data + random.choice(MALFORMED)
    return random.choice(MALFORMED) + random.choice(TEXTS).encode()

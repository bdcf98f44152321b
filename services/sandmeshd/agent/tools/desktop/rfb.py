"""What a viewer sends to the X server, checked message by message: only one in control gets its input through.

The messages are those of https://www.rfc-editor.org/rfc/rfc6143 and of the extensions that noVNC and TigerVNC share.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from sandmeshd.agent.tools.viewers import BadMessage

VERSION: Final = b"RFB 003.008\n"
_NO_SECURITY: Final = b"\x01"
_SHARED: Final = b"\x01"
_LARGEST_TEXT: Final = 1 << 20
_SET_ENCODINGS: Final = 2
_CUT_TEXT: Final = 6
_FLAGS_AT: Final = 8
_NEGATIVE: Final = 0x80
_ACTIONS: Final = 0x1F << 24
_CAPABILITIES: Final = 1 << 24
_EXTENDED_MOUSE: Final = -316
"""With this encoding the length of a mouse event would vary."""


def _fixed(size: int) -> Callable[[bytes], int]:
    return lambda _: size


def _text(data: bytes) -> int:
    # A negative length is that of the extended clipboard.
    size = abs(int(struct.unpack_from(">i", data, 4)[0])) if len(data) >= 8 else 0
    if size > _LARGEST_TEXT:
        raise BadMessage(f"a clipboard of {size} bytes")
    return 8 + size


def _counted(at: int, before: int, each: int, form: str) -> Callable[[bytes], int]:
    def size(data: bytes) -> int:
        # `before` covers the count, so a message whose count is not there yet is not whole.
        known = len(data) >= at + struct.calcsize(form)
        return before + each * (int(struct.unpack_from(form, data, at)[0]) if known else 0)

    return size


_OUTPUT: Final[Mapping[int, Callable[[bytes], int]]] = {
    0: _fixed(20),
    _SET_ENCODINGS: _counted(2, 4, 4, ">H"),
    3: _fixed(10),
    150: _fixed(10),
    248: _counted(8, 9, 1, ">B"),
}
"""The length of each message about the picture."""
_INPUT: Final[Mapping[int, Callable[[bytes], int]]] = {
    4: _fixed(8),
    5: _fixed(6),
    _CUT_TEXT: _text,
    250: _fixed(4),
    251: _counted(6, 8, 16, ">B"),
    255: _fixed(12),
}
"""The length of each message about keys, mouse, clipboard, power and size."""


class RfbMessages:
    """The messages of one viewer. `allowed` says whether its input passes now."""

    def __init__(self, allowed: Callable[[], bool]) -> None:
        self._allowed = allowed
        self._buffer = bytearray()
        self._greeting = [VERSION, _NO_SECURITY, _SHARED]

    def feed(self, data: bytes) -> bytes:
        """Take bytes and return those that pass.

        Raises:
            BadMessage: They are no messages of a viewer.
        """
        self._buffer += data
        passed = bytearray()
        while self._greeting and len(self._buffer) >= len(self._greeting[0]):
            passed += self._greet(self._greeting.pop(0))
        while not self._greeting and (message := self._next()):
            if message[0] in _OUTPUT or _is_capabilities(message) or self._allowed():
                passed += _without_extended_mouse(message) if message[0] == _SET_ENCODINGS else message
        return bytes(passed)

    def _greet(self, expected: bytes) -> bytes:
        said = bytes(self._buffer[: len(expected)])
        del self._buffer[: len(expected)]
        # The last part asks whether others stay connected: they do, whatever a viewer wants.
        if self._greeting and said != expected:
            raise BadMessage("another version of the protocol, or a kind of authentication")
        return expected

    def _next(self) -> bytes:
        """Return the next message, empty if it is not whole yet."""
        if not self._buffer:
            return b""
        kind = self._buffer[0]
        measure = _OUTPUT.get(kind) or _INPUT.get(kind)
        if measure is None:
            raise BadMessage(f"a message of the type {kind}")
        size = measure(bytes(self._buffer[:9]))
        if len(self._buffer) < size:
            return b""
        message = bytes(self._buffer[:size])
        del self._buffer[:size]
        return message


def _is_capabilities(message: bytes) -> bool:
    """Return whether a clipboard message only says what the viewer understands, which the server must know."""
    if message[0] != _CUT_TEXT or len(message) < _FLAGS_AT + 4 or message[4] < _NEGATIVE:
        return False
    return int(struct.unpack_from(">I", message, _FLAGS_AT)[0]) & _ACTIONS == _CAPABILITIES


def _without_extended_mouse(message: bytes) -> bytes:
    kinds = [kind for (kind,) in struct.iter_unpack(">i", message[4:]) if kind != _EXTENDED_MOUSE]
    return struct.pack(f">BxH{len(kinds)}i", _SET_ENCODINGS, len(kinds), *kinds)

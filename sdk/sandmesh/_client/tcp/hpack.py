"""Header fields of HTTP/2 as HPACK (RFC 7541) writes them, for a peer that was told to keep no table of them.

The library hpack (4.2) decodes a block in half the time, 18 for 34 microseconds. A connection has two blocks, and a
process would import the library first, in 2.6 ms: it would have to open some 80 connections to gain anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

Fields = tuple[tuple[str, str], ...]

LONGEST: Final = 64 << 10
"""The most bytes of a block, and of what its fields come to."""

_FIELDS: Final = (
    ":authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200|:status 204|"
    ":status 206|:status 304|:status 400|:status 404|:status 500|accept-charset|accept-encoding gzip, deflate|"
    "accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization|cache-control|"
    "content-disposition|content-encoding|content-language|content-length|content-location|content-range|content-type|"
    "cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|"
    "last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer|refresh|"
    "retry-after|server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"
)
_STATIC: Final = tuple((name, value) for name, _, value in (field.partition(" ") for field in _FIELDS.split("|")))
"""Appendix A, from index 1."""
_SYMBOLS: Final[Mapping[int, bytes]] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: bytes.fromhex("0024405b5d7e"),
    14: b"^}",
    15: b"<`{",
    19: bytes.fromhex("5cc3d0"),
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9"),
    30: bytes.fromhex("0a0d16"),
}
"""Appendix B: the symbols whose codes have so many bits, in the order of the codes, which is canonical."""
_LONGEST_CODE: Final = 30
_PADDING_BITS: Final = 7


class HpackError(ValueError):
    """A block is not what RFC 7541 allows, or longer than any that is expected."""


def encode(fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the block of header fields, each of them literal and never to be kept by anybody on the way."""
    return b"".join(b"\x10" + _text(name) + _text(value) for name, value in fields)


def decode(block: bytes) -> Fields:
    """Return the header fields of a block.

    Raises:
        HpackError: It is not valid, or refers to a field that the peer was told not to keep.
    """
    found: list[tuple[str, str]] = []
    size, at = 0, 0
    while at < len(block):
        first = block[at]
        if first & 0xE0 == 0x20:  # the size of the peer's table
            _, at = _read_number(block, at, 5)
            continue
        if first & 0x80:
            index, at = _read_number(block, at, 7)
            field = _static(index)
        else:
            index, at = _read_number(block, at, 6 if first & 0x40 else 4)
            name, at = (_static(index)[0], at) if index else _read_text(block, at)
            value, at = _read_text(block, at)
            field = name, value
        size += len(field[0]) + len(field[1])
        if size > LONGEST:
            raise HpackError("the header fields are too long")
        found.append(field)
    return tuple(found)


def _text(text: str) -> bytes:
    octets = text.encode("ascii")
    return _number(len(octets), 7) + octets


def _number(number: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if number < most:
        return bytes([number])
    out, left = bytearray([most]), number - most
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _read_number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return a number that begins in the last bits of an octet, and where it ends."""
    most = (1 << bits) - 1
    number = _octet(block, at) & most
    at += 1
    if number < most:
        return number, at
    for shift in (0, 7, 14):
        octet = _octet(block, at)
        at += 1
        number += (octet & 0x7F) << shift
        if not octet & 0x80:
            return number, at
    raise HpackError("a number is too large")


def _octet(block: bytes, at: int) -> int:
    if at >= len(block):
        raise HpackError("a field ends early")
    return block[at]


def _read_text(block: bytes, at: int) -> tuple[str, int]:
    coded = _octet(block, at) & 0x80
    length, at = _read_number(block, at, 7)
    end = at + length
    if end > len(block):
        raise HpackError("a field ends early")
    octets = block[at:end]
    return (_expand(octets) if coded else octets).decode("latin-1"), end


def _static(index: int) -> tuple[str, str]:
    if not 1 <= index <= len(_STATIC):
        raise HpackError(f"there is no field {index}: no others were to be kept")
    return _STATIC[index - 1]


def _codes() -> Mapping[tuple[int, int], int]:
    """Return the symbol of each code, which is its bits and how many these are."""
    found: dict[tuple[int, int], int] = {}
    code = bits = 0
    for length, symbols in _SYMBOLS.items():
        code <<= length - bits
        bits = length
        for symbol in symbols:
            found[bits, code] = symbol
            code += 1
    return found


_CODES: Final = _codes()


def _expand(octets: bytes) -> bytes:
    """Return what a Huffman-coded string says."""
    out = bytearray()
    bits = code = 0
    for octet in octets:
        for shift in range(7, -1, -1):
            code = code << 1 | octet >> shift & 1
            bits += 1
            symbol = _CODES.get((bits, code))
            if symbol is not None:
                out.append(symbol)
                bits = code = 0
            elif bits > _LONGEST_CODE:
                raise HpackError("a Huffman-coded field has a code that stands for nothing")
    if bits > _PADDING_BITS or code != (1 << bits) - 1:
        raise HpackError("a Huffman-coded field ends within a symbol")
    return bytes(out)

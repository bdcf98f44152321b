"""Random changes of bytes, and random values of the kinds that break programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Final

NUMBERS: Final = (
    *(0, 1, -1, 2, 7, 127, 128, 255, 256, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32),
    *(2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1),
)
TEXTS: Final = (
    *("", "a", " ", "\0", "\n", "\r\n", "\x1b[2J\x1b]0;x\x07", "\u202e", "\ufeff", "é", "e\u0301", "\U0010ffff"),
    *("..", "../../etc/passwd", "/etc/passwd", "a/b", "a:b", "a,b", "*", "%s%n", "%00", "${x}", "{}", "[]", "null"),
    *("true", "NaN", "1e999", "0x10", "-1", "localhost", "127.0.0.1", "169.254.169.254", "[::1]", "http://["),
    *("default", "base", "sb_none", "a" * 128, "a" * 129, "b" * 256, "c" * 5000, "é" * 200, "\U0001f4a9" * 70),
)  # fmt: skip
_PLAIN: Final[Sequence[Any]] = (None, True, False, 1.5, -0.0, 1e308, float("inf"), float("nan"), [], {})
_PIECES: Final = (*(text.encode() for text in TEXTS if len(text) < 300), b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80")


def mutated(random: Random, data: bytes, words: Sequence[bytes] = ()) -> bytes:
    """Return bytes with some changes, half of the time one alone."""
    for _ in range(1 if random.random() < 0.5 else random.randint(2, 8)):
        data = _CHANGES[random.randrange(len(_CHANGES))](random, data, words)
    return data


def _at(random: Random, data: bytes) -> int:
    return random.randint(0, len(data))


def _flip(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x80"
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << random.randrange(8)]) + data[place + 1 :]


def _insert(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = _at(random, data)
    piece = random.choice(words or _PIECES) if random.random() < 0.7 else random.randbytes(random.randint(1, 16))
    return data[:place] + piece + data[place:]


def _replace(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    place = _at(random, data)
    piece = random.choice(words or _PIECES)
    return data[:place] + piece + data[place + len(piece) :]


def _number(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place, size = _at(random, data), random.choice((1, 2, 4, 8))
    piece = (random.choice(NUMBERS) % (1 << 8 * size)).to_bytes(size, random.choice(("big", "little")))
    return data[:place] + piece + data[place + size :]


def _delete(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place = _at(random, data)
    return data[:place] + data[place + random.randint(1, 32) :]


def _cut(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _at(random, data)]


def _repeat(random: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place = _at(random, data)
    end = place + random.randint(1, 64)
    times = random.choice((1, 1, 2, 3, 50, 1100)) if len(data) < 1 << 16 else 1
    return data[:end] + data[place:end] * times + data[end:]


_CHANGES: Final = (_flip, _flip, _insert, _insert, _replace, _number, _number, _delete, _cut, _repeat)


def number(random: Random) -> int:
    """Return a number, mostly one at a limit."""
    return random.choice(NUMBERS) + random.choice((0, 0, 0, 1, -1)) if random.random() < 0.8 else random.randrange(1000)


def text(random: Random) -> str:
    """Return a text, mostly one that some parser once got wrong."""
    chosen = random.choice(TEXTS)
    return chosen + random.choice(TEXTS) if random.random() < 0.1 and len(chosen) < 300 else chosen


def value(random: Random, depth: int = 3) -> Any:
    """Return a value of JSON; some are deeper than Python's own limit of recursion, as no value of a program is."""
    kind = random.randrange(8 if depth else 6)
    if kind < 2:
        return text(random)
    if kind < 4:
        return number(random)
    if kind < 6:
        return random.choice(_PLAIN)
    if kind == 6:
        return [value(random, depth - 1) for _ in range(random.randrange(4))]
    return {text(random): value(random, depth - 1) for _ in range(random.randrange(4))}


def varied(random: Random, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON with some of its fields changed, missing or new."""
    made = dict(fields)
    for name in list(made):
        chance = random.random()
        if chance < 0.15:
            made[name] = value(random)
        elif chance < 0.22:
            del made[name]
        elif chance < 0.3 and isinstance(made[name], dict):
            made[name] = varied(random, made[name])
    if random.random() < 0.1:
        made[text(random)] = value(random)
    return made


def encoded(random: Random, found: Any) -> bytes:
    """Return JSON, at times with a part that is nested deep, or broken bytes."""
    data = json.dumps(found).encode()
    chance = random.random()
    if chance < 0.1:
        # Around the limit of recursion: what one reader still takes, the next may not.
        levels = random.choice((200, 900, 960, 980, 990, 1000, 1100, 100_000))
        opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
        deep = opening * levels + b"1" + closing * levels
        place = data.rfind(b"}")
        return data[:place] + (b"," if place > 1 else b"") + b'"deep":' + deep + b"}" if place >= 0 else deep
    return mutated(random, data) if chance < 0.35 else data

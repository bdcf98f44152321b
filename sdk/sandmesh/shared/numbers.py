"""Whole numbers in texts that others sent."""

from __future__ import annotations


def decimal(text: str, most: int) -> int | None:
    """Return the number that ASCII digits write, None for anything else and for one above `most`.

    `str.isdigit` is true of digits that `int` refuses, such as superscripts, and `int` refuses thousands of digits.
    """
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > len(str(most)):
        return None
    number = int(text.lstrip("0") or "0")
    return number if number <= most else None

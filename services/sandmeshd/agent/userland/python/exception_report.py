"""Exceptions of user code as JSON, for programs that do not read text."""

from __future__ import annotations

import json
from typing import Any

from sandmeshd.agent.userland.python import kernel_protocol

_LONGEST_VALUE = 8192


def encode(etype: Any, evalue: object, traceback: list[str]) -> bytes:
    """Encode an exception's name, value and the lines of its traceback; a very long one without the lines."""
    try:
        value = str(evalue)[:_LONGEST_VALUE]
    except Exception:
        value = ""
    report = {"name": getattr(etype, "__name__", str(etype)), "value": value}
    whole = json.dumps({**report, "traceback": "\n".join(traceback).split("\n") if traceback else []}).encode()
    return whole if len(whole) <= kernel_protocol.MAX_ERROR else json.dumps({**report, "traceback": []}).encode()

"""What user code raised, as JSON for whoever does not want to read text."""

from __future__ import annotations

import json
from typing import Any

from sandmeshd.agent.userland import kernel_protocol

_LONGEST_VALUE = 8192


def write(etype: Any, evalue: object, traceback: list[str]) -> bytes:
    """Give an exception's name, value and the lines of its traceback; where that is very much, without the lines."""
    try:
        value = str(evalue)[:_LONGEST_VALUE]
    except Exception:
        value = ""
    told = {"name": getattr(etype, "__name__", str(etype)), "value": value}
    whole = json.dumps({**told, "traceback": "\n".join(traceback).split("\n")}).encode()
    return whole if len(whole) <= kernel_protocol.MAX_ERROR else json.dumps({**told, "traceback": []}).encode()

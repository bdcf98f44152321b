"""Exceptions of user code as JSON, for programs that do not read text."""

from __future__ import annotations

import json
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

from sandmeshd.agent.userland.python import kernel_protocol

_LONGEST_VALUE = 8192
_OWN = ("sandmeshd.", "sandmesh.")
_CALLERS = (*_OWN, "IPython.core.interactiveshell")


def trim(raised: Any, *, callers: bool = False) -> None:
    """Take this project's frames out of an exception's traceback, and of those of the exceptions it came from.

    With `callers` also IPython's, which run the cell; where a traceback is formatted IPython leaves out its own.
    """
    own, waiting, seen = _CALLERS if callers else _OWN, [raised], set[int]()
    while waiting:
        error = waiting.pop()
        if not isinstance(error, BaseException) or id(error) in seen:
            continue
        seen.add(id(error))
        if any(_is_of(frame, own) for frame, _ in walk_tb(error.__traceback__)):
            error.__traceback__ = _without(error.__traceback__, own)
        waiting += [error.__cause__, error.__context__, *getattr(error, "exceptions", ())]


def _is_of(frame: FrameType, modules: tuple[str, ...]) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(modules)


def _without(traceback: TracebackType | None, modules: tuple[str, ...]) -> TracebackType | None:
    kept = None
    links: list[TracebackType] = []
    while traceback is not None:
        links.append(traceback)
        traceback = traceback.tb_next
    for link in reversed(links):
        if not _is_of(link.tb_frame, modules):
            kept = TracebackType(kept, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return kept


def encode(etype: Any, evalue: object, traceback: list[str]) -> bytes:
    """Encode an exception's name, value and the lines of its traceback; a very long one without the lines."""
    try:
        value = str(evalue)[:_LONGEST_VALUE]
    except Exception:
        value = ""
    report = {"name": getattr(etype, "__name__", str(etype)), "value": value}
    whole = json.dumps({**report, "traceback": "\n".join(traceback).split("\n") if traceback else []}).encode()
    return whole if len(whole) <= kernel_protocol.MAX_ERROR else json.dumps({**report, "traceback": []}).encode()

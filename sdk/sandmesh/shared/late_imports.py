"""The modules that are imported when they are first needed, in whichever thread that is.

A fork waits until none of them is in the middle of its import: a child would inherit the module's lock, and hang when
it imports the same.
"""

from __future__ import annotations

import sys
from importlib import import_module

_names: list[str] = []


def add_late_import(name: str) -> None:
    """Add a module."""
    _names.append(name)


def wait_for_imports() -> None:
    """Wait until those are imported that other threads are importing."""
    for name in _names:
        if name in sys.modules:
            import_module(name)

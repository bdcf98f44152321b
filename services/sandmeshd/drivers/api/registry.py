"""Finds drivers by name: entry points of the group `sandmesh.drivers`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.metadata import entry_points
from typing import cast

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.api.interface import Driver

GROUP = "sandmesh.drivers"

OpenDriver = Callable[..., AbstractAsyncContextManager[Driver]]
"""Opens a driver with its own settings, and `templates`: a mapping that may grow while the driver runs."""


def known_drivers() -> list[str]:
    """Give the names of the drivers that are installed, sorted."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find_driver(name: str) -> OpenDriver:
    """Give what opens a driver.

    Raises:
        RuntimeUnavailable: None of that name is installed, and `facts["known"]` lists those that are; or a package that
            it needs is not.
    """
    for entry in entry_points(group=GROUP, name=name):
        try:
            return cast("OpenDriver", entry.load())
        except ImportError as error:
            fix = f"pip install 'sandmesh[{name}]'"
            message = f"the driver {name} needs a package that is not installed ({error}): {fix}"
            raise RuntimeUnavailable(message, {"fix": fix}) from None
    known = ", ".join(known_drivers())
    fix = f"choose one of these: {known}; or install the package that has it"
    raise RuntimeUnavailable(f"no driver {name!r} is installed: {fix}", {"fix": fix, "known": known})

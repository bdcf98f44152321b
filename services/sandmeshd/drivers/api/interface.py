"""The interface of drivers, by the name that drivers of other packages import it."""

from __future__ import annotations

from sandmeshd.contracts.driver import Driver

__all__ = ["Driver"]

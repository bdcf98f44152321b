"""Stands in for `cryptography`, which mcp imports for its servers and its client never uses.

It is 13 MB, nearly half of the libraries of the MCP client process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

PACKAGE: Final = "cryptography"


class _Placeholder(ModuleType):
    """A module that has every name, as a class of which nothing can be made."""

    def __getattr__(self, name: str) -> type[Exception]:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Exception,), {"__init__": _refuse, "__module__": self.__name__})


def _refuse(self: object, *_: object, **__: object) -> None:
    kind = type(self)
    raise RuntimeError(f"{kind.__module__}.{kind.__qualname__} is not in the MCP client process")


class _Placeholders(MetaPathFinder, Loader):
    """Finds the package and whatever is imported below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] == PACKAGE else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make a module."""
        return _Placeholder(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave a module as it was made."""


def install() -> None:
    """Replace the package's modules, from the next import on, by placeholders."""
    sys.meta_path.insert(0, _Placeholders())

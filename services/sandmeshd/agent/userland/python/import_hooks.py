"""What a kernel does at imports: finds what was installed a moment ago, and adapts libraries once they are imported."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import invalidate_caches
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, cast

from sandmeshd.agent.userland.core import layer

Adapt = Callable[[ModuleType], None]

_FINDERS: list[Any] = cast("list[Any]", sys.meta_path)


class InstalledPackages:
    """The layer of packages as a kernel sees it; the last of Python's finders, asked where no other finds a module."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Make the layer that the environment names, and put it before the template's packages."""
        self._environment = environment
        layer.make(environment)
        root = environment.get("VIRTUAL_ENV", "")
        self._packages = f"{root}/{layer.PACKAGES}"
        self._seen = self._changed_at()
        if not root or root == sys.prefix:
            return
        if self._seen:
            # What runs `sys.executable -m pip`, as %pip does, means the layer.
            sys.executable = f"{root}/bin/python"
        at = next((n for n, path in enumerate(sys.path) if path.endswith("site-packages")), len(sys.path))
        sys.path.insert(at, self._packages)
        if self._seen and os.listdir(self._packages) != [layer.TEMPLATE]:  # noqa: PTH208 - pathlib is a slow import
            site.addsitedir(self._packages)
        _FINDERS.append(self)

    def refresh(self) -> bool:
        """Take note of what was installed or removed since the last time; return whether anything was.

        A layer that was removed is made again.
        """
        seen = self._changed_at()
        if not seen:
            layer.make(self._environment)
            seen = self._changed_at()
        if seen == self._seen:
            return False
        self._seen = seen
        site.addsitedir(self._packages)
        invalidate_caches()
        return True

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Look for a module again, where something was installed since the last look."""
        return PathFinder.find_spec(name, path, target) if self.refresh() else None

    def _changed_at(self) -> int:
        try:
            return os.stat(self._packages).st_mtime_ns  # noqa: PTH116 - as above
        except OSError:
            return 0


class Adaptations:
    """The first of Python's finders: calls functions with modules that were just imported for the first time."""

    def __init__(self, adapt: dict[str, Adapt]) -> None:
        self._adapt = adapt
        _FINDERS.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Find a module that is to be adapted, as the others would; leave the rest to them."""
        adapt = self._adapt.pop(name, None)
        if adapt is None:
            return None
        found: Iterator[ModuleSpec | None]
        found = (finder.find_spec(name, path, target) for finder in _FINDERS if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            self._adapt[name] = adapt
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_adapt(module: ModuleType) -> None:
            execute(module)
            # Another version of the library may differ: then it works as it does everywhere.
            with suppress(Exception):
                adapt(module)

        loader.exec_module = execute_and_adapt
        return spec

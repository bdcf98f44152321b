"""AgentScope Runtime's import paths for sandboxes, over the public SDK: for migrating a file at a time.

    import sandmesh.compat.agentscope_runtime

    sandmesh.compat.agentscope_runtime.install()
    from agentscope_runtime.sandbox import BaseSandbox

`docs/migrating.md` lists every name with its counterpart.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from sandmesh.compat.agentscope_runtime.names import ABSENT, MODULES, ROOT, find
from sandmesh.errors import AlreadyExists

__all__ = ["install", "uninstall"]


class _Loader(Loader):
    """Loads a module whose names are resolved at their first use."""

    def exec_module(self, module: ModuleType) -> None:
        names = MODULES[module.__name__]

        def load(name: str) -> object:
            if name in ABSENT:
                raise ImportError(f"{module.__name__}.{name} has no counterpart in sandmesh: {ABSENT[name]}")
            if name not in names:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r} in sandmesh's compat")
            found = find(names[name])
            setattr(module, name, found)
            return found

        module.__doc__ = f"{module.__name__} over sandmesh."
        module.__dict__.update(__getattr__=load, __all__=sorted(names), __path__=[])


class _Finder(MetaPathFinder):
    """Finds the old modules, and only those."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname in MODULES:
            return ModuleSpec(fullname, _Loader(), is_package=True)
        if fullname == ROOT or fullname.startswith(f"{ROOT}."):
            known = ", ".join(MODULES)
            raise ModuleNotFoundError(f"{fullname} has no counterpart in sandmesh; there are {known}", name=fullname)
        return None


def install() -> None:
    """Make the old paths importable in this process. Installing twice changes nothing.

    Raises:
        AlreadyExists: The package itself is installed or imported, so an import would be ambiguous.
    """
    if _installed():
        return
    if ROOT in sys.modules or importlib.util.find_spec(ROOT) is not None:
        fix = f"pip uninstall {ROOT.replace('_', '-')}, or do not call install()"
        raise AlreadyExists(f"{ROOT} itself is installed here: {fix}", {"fix": fix})
    sys.meta_path.append(_Finder())


def uninstall() -> None:
    """Remove the old paths; objects that were imported through them stay usable."""
    for finder in _installed():
        sys.meta_path.remove(finder)
    for name in [name for name in sys.modules if name in MODULES]:
        del sys.modules[name]


def _installed() -> list[_Finder]:
    return [finder for finder in sys.meta_path if isinstance(finder, _Finder)]

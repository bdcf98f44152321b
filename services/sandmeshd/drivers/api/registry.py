"""The drivers that are installed: entry points of the group `sandmesh.drivers`, each a pair of settings and `open`."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any, NamedTuple, cast

from sandmesh.errors import RuntimeUnavailable, SandmeshError
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.settings import PREFIX, Variable, variables_of
from sandmeshd.templates import Template

GROUP = "sandmesh.drivers"


class DriverPlugin(NamedTuple):
    """What an entry point of a driver refers to; a plain pair of the first two does as well."""

    settings: type[DriverSettings]
    open: Callable[..., AbstractAsyncContextManager[Driver]]
    """Opens a driver with its own settings, and `templates`: a mapping that may grow while the driver runs."""
    sweep: Callable[[MeshPaths], Awaitable[None]] | None = None
    """Removes what a mesh that was killed left on this machine, where starting the driver does not do that."""


def known_drivers() -> list[str]:
    """Return the names of the drivers that are installed, sorted."""
    return sorted({entry.name for entry in _entry_points(tuple(sys.path))})


def find_driver(name: str) -> DriverPlugin:
    """Return a driver's settings class and what opens it.

    Raises:
        RuntimeUnavailable: None of that name is installed, and `facts["known"]` lists those that are; two are; a
            package that it needs is not installed; or what its entry point refers to is not a driver.
    """
    entry = _find_entry(name)
    try:
        return _checked(entry)
    except ImportError as error:
        raise _not_installed(entry, error) from None


def _find_entry(name: str) -> EntryPoint:
    found = [entry for entry in _entry_points(tuple(sys.path)) if entry.name == name]
    if len(found) > 1:
        packages = " and ".join(sorted(_package(entry) for entry in found))
        fix = "uninstall one of them"
        raise RuntimeUnavailable(f"two drivers are called {name}, of {packages}: {fix}", {"fix": fix})
    if not found:
        known = ", ".join(known_drivers())
        fix = f"choose one of these: {known}; or install the package that has it"
        raise RuntimeUnavailable(f"no driver {name!r} is installed: {fix}", {"fix": fix, "known": known})
    return found[0]


@cache
def _entry_points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    # Reading the metadata of all packages takes long, and only another path has others.
    return tuple(entry_points(group=GROUP))


def _checked(entry: EntryPoint) -> DriverPlugin:
    pair = _as_tuple(entry.load())
    settings = pair[0] if pair else None
    is_class = isinstance(settings, type) and issubclass(settings, DriverSettings)
    if len(pair) not in (2, 3) or not is_class or not callable(pair[1]):
        fix = "it must refer to a pair: a class derived from DriverSettings, and a function that opens the driver"
        message = f"the entry point {entry.value!r} of the driver {entry.name} (of {_package(entry)}) is wrong: {fix}"
        raise RuntimeUnavailable(message, {"fix": fix})
    plugin = DriverPlugin(*cast("tuple[Any, Any]", pair))
    wrong = next((one for one in variables_of(plugin.settings) if not one.startswith(PREFIX)), None)
    if wrong is not None:
        fix = f"its settings class must have an env_prefix that begins with {PREFIX}"
        raise RuntimeUnavailable(f"the driver {entry.name} has the setting {wrong}: {fix}", {"fix": fix})
    return plugin


def _as_tuple(loaded: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", loaded) if isinstance(loaded, tuple) else ()


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _not_installed(entry: EntryPoint, error: ImportError) -> RuntimeUnavailable:
    missing = (error.name or "").partition(".")[0].replace("_", "-").lower()
    extra = "" if entry.dist is None else _extra_with(missing, entry.dist)
    fix = f"pip install '{extra}'" if extra else "install it"
    message = f"the driver {entry.name} needs a package that is not installed ({error}): {fix}"
    return RuntimeUnavailable(message, {"fix": fix})


def _extra_with(package: str, distribution: Distribution) -> str:
    """Return the smallest extra of a distribution that has a package, as pip takes it; empty where none has."""
    extras: dict[str, set[str]] = {}
    for line in distribution.requires or ():
        found = re.match(r"([\w.-]+).*;.*extra == ['\"]([^'\"]+)", line)
        if found:
            extras.setdefault(found[2], set()).add(found[1].replace("_", "-").lower())
    having = [name for name, packages in extras.items() if package in packages]
    extra = min(having, key=lambda name: len(extras[name]), default="")
    return f"{distribution.name}[{extra}]" if extra else ""


def find_drivers() -> dict[str, DriverPlugin]:
    """Return every driver that is installed and can be loaded, by name: another's fault is told when it is chosen."""
    found: dict[str, DriverPlugin] = {}
    for name in known_drivers():
        try:
            found[name] = find_driver(name)
        except SandmeshError:
            continue
    return found


def driver_variables() -> dict[str, Variable]:
    """Return the variables of all drivers' settings, by name."""
    found: dict[str, Variable] = {}
    for plugin in find_drivers().values():
        found = variables_of(plugin.settings) | found
    return found


@asynccontextmanager
async def open_plugin(
    name: str, settings: DriverSettings, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open a driver by name.

    Raises:
        RuntimeUnavailable: As `find_driver` and the driver itself.
    """
    plugin = find_driver(name)
    async with AsyncExitStack() as stack:
        try:
            driver = await stack.enter_async_context(plugin.open(settings, templates=templates))
        except ImportError as error:
            raise _not_installed(_find_entry(name), error) from None
        yield driver

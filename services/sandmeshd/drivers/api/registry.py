"""The drivers that are installed: entry points of the group `sandmesh.drivers`, each a pair of settings and `open`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple, cast

from sandmesh.errors import RuntimeUnavailable, SandmeshError
from sandmeshd.contracts.driver import Driver
from sandmeshd.contracts.entry_points import check_interface, entry_names, find_entry, not_installed, wrong_entry
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.settings import PREFIX, Variable, variables_of
from sandmeshd.templates import Template

GROUP, NOUN = "sandmesh.drivers", "driver"


class DriverPlugin(NamedTuple):
    """What an entry point of a driver refers to; a plain pair of the first two does as well."""

    settings: type[DriverSettings]
    open: Callable[..., AbstractAsyncContextManager[Driver]]
    """Opens a driver with its own settings, and `templates`: a mapping that may grow while the driver runs."""
    sweep: Callable[[MeshPaths], Awaitable[None]] | None = None
    """Removes what a mesh that was killed left on this machine, where starting the driver does not do that."""
    interface: int = 1
    """The version of the interface of drivers that it was written for."""


def known_drivers() -> list[str]:
    """Return the names of the drivers that are installed, sorted."""
    return entry_names(GROUP)


def find_driver(name: str) -> DriverPlugin:
    """Return a driver's settings class and what opens it.

    Raises:
        RuntimeUnavailable: None of that name is installed, and `facts["known"]` lists those that are; two are; a
            package that it needs is not installed; or what its entry point refers to is not a driver, or one of another
            version of the interface.
    """
    entry = find_entry(GROUP, NOUN, name)
    try:
        return _checked(entry)
    except ImportError as error:
        raise not_installed(NOUN, entry, error) from None


def _checked(entry: EntryPoint) -> DriverPlugin:
    pair = _as_tuple(entry.load())
    settings = pair[0] if pair else None
    is_class = isinstance(settings, type) and issubclass(settings, DriverSettings)
    if not 2 <= len(pair) <= len(DriverPlugin._fields) or not is_class or not callable(pair[1]):
        fix = "it must refer to a pair: a class derived from DriverSettings, and a function that opens the driver"
        raise wrong_entry(NOUN, entry, fix)
    plugin = DriverPlugin(*cast("tuple[Any, Any]", pair))
    check_interface(NOUN, entry, plugin.interface)
    wrong = next((variable for variable in variables_of(plugin.settings) if not variable.startswith(PREFIX)), None)
    if wrong is not None:
        fix = f"its settings class must have an env_prefix that begins with {PREFIX}"
        raise RuntimeUnavailable(f"the driver {entry.name} has the setting {wrong}: {fix}", {"fix": fix})
    return plugin


def _as_tuple(loaded: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", loaded) if isinstance(loaded, tuple) else ()


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
            raise not_installed(NOUN, find_entry(GROUP, NOUN, name), error) from None
        yield driver

"""The doors that are installed: entry points of the group `sandmesh.doors`, each a `DoorPlugin`."""

from __future__ import annotations

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.contracts.door import DoorPlugin, DoorSettings
from sandmeshd.contracts.entry_points import check_interface, entry_names, find_entry, not_installed, wrong_entry
from sandmeshd.runtime.settings import PREFIX, Variable, variables_of

GROUP, NOUN = "sandmesh.doors", "door"


def find_door(name: str) -> DoorPlugin:
    """Return a door's plugin.

    Raises:
        RuntimeUnavailable: None of that name is installed; two are; a package that it needs is not installed; or what
            its entry point refers to is not a door, or one of another version of the interface.
    """
    entry = find_entry(GROUP, NOUN, name)
    try:
        plugin: object = entry.load()
    except ImportError as error:
        raise not_installed(NOUN, entry, error) from None
    if not isinstance(plugin, DoorPlugin) or not _is_settings(plugin.settings) or not callable(plugin.open):
        fix = "it must refer to a DoorPlugin: a class derived from DoorSettings, a function that opens the door, a hint"
        raise wrong_entry(NOUN, entry, fix)
    check_interface(NOUN, entry, plugin.interface)
    wrong = next((variable for variable in variables_of(plugin.settings) if not variable.startswith(PREFIX)), None)
    if wrong is not None:
        fix = f"its settings class must have an env_prefix that begins with {PREFIX}"
        raise RuntimeUnavailable(f"the door {name} has the setting {wrong}: {fix}", {"fix": fix})
    return plugin


def _is_settings(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, DoorSettings)


def find_doors() -> dict[str, DoorPlugin]:
    """Return every door that is installed, by name.

    Raises:
        RuntimeUnavailable: As `find_door`: a door that cannot be read might be one that settings open.
    """
    return {name: find_door(name) for name in entry_names(GROUP)}


def switch(plugin: DoorPlugin) -> Variable:
    """Return the variable by which a door is opened."""
    return next(variable for variable in variables_of(plugin.settings).values() if variable.path == ("enabled",))


def door_variables() -> dict[str, Variable]:
    """Return the variables of all doors' settings, by name.

    Raises:
        RuntimeUnavailable: Two doors have one setting, or as `find_doors`.
    """
    found: dict[str, Variable] = {}
    owners: dict[str, str] = {}
    for name, plugin in find_doors().items():
        for variable, one in variables_of(plugin.settings).items():
            if variable in owners:
                fix = "uninstall one of them"
                message = f"the doors {owners[variable]} and {name} both have the setting {variable}: {fix}"
                raise RuntimeUnavailable(message, {"fix": fix})
            owners[variable], found[variable] = name, one
    return found

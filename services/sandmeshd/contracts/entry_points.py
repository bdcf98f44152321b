"""Plugins of installed packages, by the group and name of their entry points."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points

from sandmesh.errors import RuntimeUnavailable


def entry_names(group: str) -> list[str]:
    """Return the names of a group's entry points, sorted."""
    return sorted({entry.name for entry in _entry_points(group, tuple(sys.path))})


def find_entry(group: str, noun: str, name: str) -> EntryPoint:
    """Return the entry point of a name; `noun` is what the group has, such as driver.

    Raises:
        RuntimeUnavailable: None of that name is installed, and `facts["known"]` lists those that are; or two are.
    """
    found = [entry for entry in _entry_points(group, tuple(sys.path)) if entry.name == name]
    if len(found) > 1:
        packages = " and ".join(sorted(package_of(entry) for entry in found))
        fix = "uninstall one of them"
        raise RuntimeUnavailable(f"two {noun}s are called {name}, of {packages}: {fix}", {"fix": fix})
    if not found:
        known = ", ".join(entry_names(group))
        fix = f"choose one of these: {known}; or install the package that has it"
        raise RuntimeUnavailable(f"no {noun} {name!r} is installed: {fix}", {"fix": fix, "known": known})
    return found[0]


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    # Reading the metadata of all packages takes long, and only another path has others.
    return tuple(entry_points(group=group))


def package_of(entry: EntryPoint) -> str:
    """Return the package of an entry point with its version."""
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


INTERFACES = {"driver": (1,), "door": (1,)}
"""The versions of each plugin interface that this mesh works with; a plugin that names none has the first."""


def check_interface(noun: str, entry: EntryPoint, version: int) -> None:
    """Check that a plugin was written for an interface that this mesh has.

    Raises:
        RuntimeUnavailable: It was not; the message says which of the two to upgrade.
    """
    supported = INTERFACES[noun]
    if version in supported:
        return
    fix = "upgrade sandmesh" if version > max(supported) else f"upgrade {package_of(entry).partition(' ')[0]}"
    have = " and ".join(map(str, supported))
    message = f"the {noun} {entry.name} (of {package_of(entry)}) is for version {version} of the interface of {noun}s"
    raise RuntimeUnavailable(f"{message}, and this mesh has {have}: {fix}", {"fix": fix})


def wrong_entry(noun: str, entry: EntryPoint, fix: str) -> RuntimeUnavailable:
    """Return the error of an entry point that refers to something else than what its group has."""
    message = f"the entry point {entry.value!r} of the {noun} {entry.name} (of {package_of(entry)}) is wrong: {fix}"
    return RuntimeUnavailable(message, {"fix": fix})


def not_installed(noun: str, entry: EntryPoint, error: ImportError) -> RuntimeUnavailable:
    """Return the error of a plugin that needs a package which is not installed; it names the extra that has it."""
    missing = (error.name or "").partition(".")[0].replace("_", "-").lower()
    extra = "" if entry.dist is None else _extra_with(missing, entry.dist)
    fix = f"pip install '{extra}'" if extra else "install it"
    message = f"the {noun} {entry.name} needs a package that is not installed ({error}): {fix}"
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

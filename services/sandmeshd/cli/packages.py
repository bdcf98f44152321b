"""The packages that commands need besides their own: which version is installed, and which is needed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

_BOUND = re.compile(r"(>=|<)\s*([\d.]+)")


def explain_package(program: str, package: str, extra: str, fix: str) -> str | None:
    """Return what is wrong with an installed package, or that it is missing; None where it fits."""
    needed = needed_version(package, extra)
    try:
        installed = version(package)
    except PackageNotFoundError:
        return f"{program} needs the package {package}{needed}, which is not installed: {fix}"
    if fits(installed, needed):
        return None
    return f"{program} needs {package}{needed}, but {package} {installed} is installed: {fix}"


def needed_version(package: str, extra: str) -> str:
    """Return the versions of a package that an extra of this distribution asks for, as `>=2.2,<3`."""
    pattern = re.compile(rf"{re.escape(package)}(?:\[[^\]]*\])?\s*([^;]*)")
    try:
        listed = requires("sandmesh") or []
    except PackageNotFoundError:
        listed = []
    ours = (pattern.fullmatch(one.partition(";")[0].strip()) for one in listed if f'"{extra}"' in one.replace("'", '"'))
    # In the order in which people write them: from the lowest on.
    return next((",".join(sorted(found[1].split(","), reverse=True)) for found in ours if found), "")


def fits(installed: str, needed: str) -> bool:
    """Return whether a version is within bounds that are written as `>=2.2,<3`."""
    numbers = _numbers(installed)
    bounds = [(operator, _numbers(bound)) for operator, bound in _BOUND.findall(needed)]
    return all(numbers >= bound if operator == ">=" else numbers < bound for operator, bound in bounds)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])

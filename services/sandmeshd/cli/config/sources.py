"""The variables of a mesh's settings: each by its name, with its source."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sandmesh.errors import InvalidArgument

PREFIX: Final = "SANDMESH_"
CONFIG: Final = "SANDMESH_CONFIG"

CLIENTS: Final = frozenset(
    {"ADDRESS", "TOKEN", "CA_FILE", "NEW_CALL_SECONDS", "IMAGE_REGISTRY", "CONFIG", "KERNEL", "FAULTS"}
)
"""Variables that clients, kernels and tests read: not settings of a mesh."""

TESTS: Final = "TEST_"


@dataclass(frozen=True)
class RawValue:
    """The text of a variable, where it was set, and whether it was written with the prefix there."""

    text: str
    source: str
    has_prefix: bool = True


def unknown_variables(values: Mapping[str, RawValue], known: Iterable[str]) -> dict[str, str]:
    """Return the variables of the environment that are not settings, each with the nearest one.

    Others write to the environment as well: Kubernetes has SANDMESH_SERVICE_HOST there for a Service of that name.

    Raises:
        InvalidArgument: A file has an unknown name; the message names the nearest that is known.
    """
    names, found = sorted(known), dict[str, str]()
    for name in sorted(set(values) - set(names)):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        fix = f"did you mean {PREFIX}{near[0]}?" if near else "`sandmesh config show` lists all of them"
        if values[name].source != f"{PREFIX}{name}":
            message = f"{PREFIX}{name} (in {values[name].source}) is not a setting: {fix}"
            raise InvalidArgument(message, {"setting": f"{PREFIX}{name}", "fix": fix})
        found[f"{PREFIX}{name}"] = fix
    return found

"""What is stated about a mesh, in a file and in the environment: each by its name, with where it was stated."""

from __future__ import annotations

import difflib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from sandmesh.errors import InvalidArgument

PREFIX: Final = "SANDMESH_"
CONFIG: Final = "SANDMESH_CONFIG"

CLIENTS: Final = frozenset({"ADDRESS", "TOKEN", "CA_FILE", "CONFIG", "KERNEL", "FAULTS"})
"""What clients, kernels and tests read of the environment: no settings of a mesh."""

_TESTS: Final = "TEST_"


@dataclass(frozen=True)
class Stated:
    """A text, and where it was stated."""

    text: str
    source: str


def gather(environment: Mapping[str, str], file: Path | None) -> dict[str, Stated]:
    """Give what is stated, by names without the prefix; the environment goes before the file.

    Raises:
        InvalidArgument: The file cannot be read, or has a line that is no setting.
    """
    stated = {} if file is None else _of_file(file)
    for variable, text in environment.items():
        name = variable.upper().removeprefix(PREFIX)
        if name != variable.upper() and not name.startswith(_TESTS):
            stated[name] = Stated(text, variable.upper())
    return {name: one for name, one in stated.items() if name not in CLIENTS}


def _of_file(file: Path) -> dict[str, Stated]:
    try:
        values = dotenv_values(stream=io.StringIO(file.read_text("utf-8")), interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration {file} cannot be read: {error}", {"file": str(file)}) from None
    stated: dict[str, Stated] = {}
    for variable, value in values.items():
        name = variable.upper().removeprefix(PREFIX)
        if value is None or name == variable.upper():
            form = f"write {PREFIX}{name}=VALUE"
            raise InvalidArgument(f"{file}: {variable!r} is no setting of a mesh: {form}", {"file": str(file)})
        stated[name] = Stated(value, str(file))
    return stated


def check_known(stated: Mapping[str, Stated], known: Iterable[str]) -> None:
    """Refuse names that are none of the known ones.

    Raises:
        InvalidArgument: There is one; the message names the nearest that is known.
    """
    names = sorted(known)
    for name, one in stated.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            fix = f"did you mean {PREFIX}{near[0]}?" if near else "`sandmesh config show` lists those that there are"
            message = f"{PREFIX}{name} (in {one.source}) is no setting: {fix}"
            raise InvalidArgument(message, {"setting": f"{PREFIX}{name}", "fix": fix})

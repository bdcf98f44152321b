"""The variables of a mesh's settings in a file and in the environment: each by its name, with its source."""

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

CLIENTS: Final = frozenset({"ADDRESS", "TOKEN", "CA_FILE", "NEW_CALL_SECONDS", "CONFIG", "KERNEL", "FAULTS"})
"""Variables that clients, kernels and tests read: not settings of a mesh."""

_TESTS: Final = "TEST_"


@dataclass(frozen=True)
class RawValue:
    """The text of a variable, and where it was set."""

    text: str
    source: str


def gather(environment: Mapping[str, str], file: Path | None) -> dict[str, RawValue]:
    """Return the variables that are set, by names without the prefix; the environment takes precedence over the file.

    Raises:
        InvalidArgument: The file cannot be read, or has a line that is not a setting.
    """
    values = {} if file is None else _of_file(file)
    for variable, text in environment.items():
        name = variable.upper().removeprefix(PREFIX)
        if name != variable.upper() and not name.startswith(_TESTS):
            values[name] = RawValue(text, variable.upper())
    return {name: one for name, one in values.items() if name not in CLIENTS}


def _of_file(file: Path) -> dict[str, RawValue]:
    try:
        parsed = dotenv_values(stream=io.StringIO(file.read_text("utf-8")), interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration {file} cannot be read: {error}", {"file": str(file)}) from None
    values: dict[str, RawValue] = {}
    for variable, value in parsed.items():
        name = variable.upper().removeprefix(PREFIX)
        if value is None or name == variable.upper():
            form = f"write {PREFIX}{name}=VALUE"
            raise InvalidArgument(f"{file}: {variable!r} is not a setting of a mesh: {form}", {"file": str(file)})
        values[name] = RawValue(value, str(file))
    return values


def check_known(values: Mapping[str, RawValue], known: Iterable[str]) -> None:
    """Refuse unknown names.

    Raises:
        InvalidArgument: There is one; the message names the nearest that is known.
    """
    names = sorted(known)
    for name, one in values.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            fix = f"did you mean {PREFIX}{near[0]}?" if near else "`sandmesh config show` lists all of them"
            message = f"{PREFIX}{name} (in {one.source}) is not a setting: {fix}"
            raise InvalidArgument(message, {"setting": f"{PREFIX}{name}", "fix": fix})

"""The file with a mesh's settings, and what it and the environment set together."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.legacy_names import DISTINCTIVE, is_old_name
from sandmeshd.cli.config.sources import CLIENTS, CONFIG, PREFIX, TESTS, RawValue

DOTENV: Final = ".env"
"""The name of the file that is read from the working directory. Variables of other programs may be in it."""


def find_config(config: Path | None, environment: Mapping[str, str], directory: Path | None = None) -> Path | None:
    """Return the file with the settings: `config`, else SANDMESH_CONFIG's, else a `.env` in the directory.

    A `.env` counts if it has settings of a mesh or names that only AgentScope Runtime has; every program has a HOST.
    """
    if config is not None or environment.get(CONFIG):
        return config or Path(environment[CONFIG])
    file = None if directory is None else directory / DOTENV
    if file is None or not file.is_file():
        return None
    try:
        names = {name.upper() for name in _parse(file)}
    except InvalidArgument:
        return None
    return file if _settings_among(names) or names & DISTINCTIVE else None


def gather(environment: Mapping[str, str], file: Path | None) -> dict[str, RawValue]:
    """Return the variables that are set, by names without the prefix; the environment takes precedence over the file.

    In the file, names of AgentScope Runtime need no prefix. In a `.env` that has settings with the prefix the others
    are another program's.

    Raises:
        InvalidArgument: The file cannot be read, or has a line that is not a setting.
    """
    values = {} if file is None else _of_file(file)
    for variable, text in environment.items():
        name = variable.upper().removeprefix(PREFIX)
        if name != variable.upper() and not name.startswith(TESTS):
            values[name] = RawValue(text, variable.upper())
    return {name: one for name, one in values.items() if name not in CLIENTS}


def _settings_among(names: Iterable[str]) -> set[str]:
    own = {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
    return {name for name in own - CLIENTS if not name.startswith(TESTS)}


def _of_file(file: Path) -> dict[str, RawValue]:
    parsed = {variable.upper(): value for variable, value in _parse(file).items()}
    is_shared = file.name == DOTENV
    takes_old = not (is_shared and _settings_among(parsed))
    values: dict[str, RawValue] = {}
    # A name with the prefix takes precedence over the same one without.
    for variable in sorted(parsed, key=lambda variable: variable.startswith(PREFIX)):
        name, value, is_own = variable.removeprefix(PREFIX), parsed[variable], variable.startswith(PREFIX)
        if value is not None and (is_own or (takes_old and is_old_name(name))):
            values[name] = RawValue(value, str(file), is_own)
        elif is_own or not is_shared:
            form = f"write {PREFIX}{name}=VALUE"
            raise InvalidArgument(f"{file}: {variable!r} is not a setting of a mesh: {form}", {"file": str(file)})
    return values


def _parse(file: Path) -> dict[str, str | None]:
    try:
        return dotenv_values(stream=io.StringIO(file.read_text("utf-8")), interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration {file} cannot be read: {error}", {"file": str(file)}) from None

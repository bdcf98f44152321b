"""Settings of a mesh: of the command line, else the environment, else a file, else this machine's own clients."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

import structlog
from pydantic import ValidationError

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.config_file import DOTENV, find_config, gather
from sandmeshd.cli.config.host_clients import read_clients
from sandmeshd.cli.config.legacy_names import MEANINGS, ignored_names, is_without_effect, translate, unused_names
from sandmeshd.cli.config.sources import PREFIX, RawValue, unknown_variables
from sandmeshd.drivers.api.registry import find_driver, known_drivers
from sandmeshd.mesh.doors import check_doors
from sandmeshd.mesh.driver import check_drivers
from sandmeshd.mesh.settings import MeshSettings, all_variables
from sandmeshd.runtime.settings import Variable

log = structlog.get_logger()

COMMAND_LINE = "the command line"
CLIENTS = "the configuration of pip and npm, or the proxy's variables"


@dataclass(frozen=True)
class Remark:
    """A fact about the file or the variables of a mesh, which does not keep it from starting."""

    event: str
    facts: Mapping[str, str]
    is_warning: bool = False


def read_settings(
    config: Path | None = None, defaults: Mapping[str, object] | None = None, **options: Any
) -> MeshSettings:
    """Return the settings; options that are not None take precedence over everything, `defaults` over nothing.

    The file is `config`, else the one that SANDMESH_CONFIG names.

    Raises:
        InvalidArgument: One is unknown, contradicts another or does not fit; the message names the variable.
        RuntimeUnavailable: The driver cannot be loaded, or two packages have one of its name.
    """
    return read_with_sources(config, defaults, **options)[0]


def read_with_sources(
    config: Path | None = None, defaults: Mapping[str, object] | None = None, **options: Any
) -> tuple[MeshSettings, Mapping[str, str]]:
    """Return the settings, and by name the source of each that is not a default.

    Raises:
        InvalidArgument: As `read_settings`.
        RuntimeUnavailable: As `read_settings`.
    """
    raw = _raw_values(config)
    own = {name.removeprefix(PREFIX): variable for name, variable in all_variables().items()}
    found: dict[str, tuple[object, str]] = {name: (value, "default") for name, value in (defaults or {}).items()}
    found |= {name: (value, CLIENTS) for name, value in read_clients(os.environ).items() if name.upper() in own}
    found |= translate(raw)
    found |= {own[name].setting: (_parse(own[name], one), one.source) for name, one in raw.items() if name in own}
    found |= {name: (value, COMMAND_LINE) for name, value in options.items() if value is not None}
    driver = str(found["driver"][0]) if "driver" in found else MeshSettings.model_fields["driver"].default
    _check_driver(driver)
    _unknown(raw)
    if "DEFAULT_MOUNT_DIR" in _unused_names(raw, driver):
        del found["workspaces_directory"]
    settings = _validated({name: value for name, (value, _) in found.items()}, raw)
    return settings, {name: source for name, (_, source) in found.items() if source != "default"}


def read_notes(settings: MeshSettings, config: Path | None = None) -> dict[str, str]:
    """Return the variables that are set to their default and have no effect, each with the reason."""
    return {f"{PREFIX}{name}": why for name, why in _unused_names(_raw_values(config), settings.driver).items()}


def read_remarks(config: Path | None = None) -> list[Remark]:
    """Return remarks on the file and variables of a mesh for the user who starts it, the less usual last."""
    raw, file = _raw_values(config), find_config(config, os.environ)
    remarks: list[Remark] = []
    if file is not None and file.name == DOTENV:
        remarks.append(Remark("settings are read from a .env file", {"file": str(file)}))
    old = sorted(name for name, one in raw.items() if not one.has_prefix)
    if old:
        facts = {"file": str(file), "names": ", ".join(old)}
        remarks.append(Remark(f"names without {PREFIX} are taken as AgentScope Runtime's", facts))
    for name, why in ignored_names(raw).items():
        remarks.append(Remark("a setting is ignored", {"setting": f"{PREFIX}{name}", "detail": why}))
    for name, fix in _unknown(raw).items():
        remarks.append(Remark("an unknown variable is ignored", {"setting": name, "fix": fix}, is_warning=True))
    return remarks


def log_remarks(config: Path | None = None) -> None:
    """Log them."""
    for remark in read_remarks(config):
        (log.warning if remark.is_warning else log.info)(remark.event, **remark.facts)


def _unused_names(raw: Mapping[str, RawValue], driver: str) -> dict[str, str]:
    return unused_names(raw, driver, keeps_directories=find_driver(driver).settings.keeps_directories)


def _raw_values(config: Path | None) -> dict[str, RawValue]:
    return gather(os.environ, find_config(config, os.environ))


def _unknown(raw: Mapping[str, RawValue]) -> dict[str, str]:
    known = {name.removeprefix(PREFIX) for name in all_variables()} | set(MEANINGS)
    return unknown_variables({name: one for name, one in raw.items() if not is_without_effect(name)}, known)


def _parse(variable: Variable, raw: RawValue) -> object:
    """Parse a text as the setting's type has it: lists and tables are JSON."""
    if get_origin(_without_none(variable.field.annotation)) not in (tuple, list, dict):
        return raw.text
    try:
        return json.loads(raw.text)
    except ValueError:
        form = 'JSON, like ["a"] or {"a": 1}'
        message = f"{variable.name} must be {form}, not {raw.text!r}"
        raise InvalidArgument(message, {"setting": variable.setting}) from None


def _without_none(annotation: Any) -> Any:
    parts = [part for part in getattr(annotation, "__args__", ()) if part is not type(None)]
    return parts[0] if type(None) in getattr(annotation, "__args__", ()) and parts else annotation


def _validated(values: Mapping[str, object], raw: Mapping[str, RawValue]) -> MeshSettings:
    try:
        settings = MeshSettings.model_validate(dict(values))
    except ValidationError as error:
        by_path = {variable.path: variable.setting for variable in all_variables().values()}
        problems = "; ".join(
            f"{_variable(problem['loc'], by_path, raw)}{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise InvalidArgument(f"settings do not fit: {problems}") from None
    _check(settings)
    return settings


def _variable(
    location: tuple[int | str, ...], by_path: Mapping[tuple[str, ...], str], raw: Mapping[str, RawValue]
) -> str:
    """Return a setting's name as it was set, perhaps its old one; nothing where settings contradict each other."""
    parts = tuple(map(str, location))
    end = next((end for end in range(len(parts), 0, -1) if parts[:end] in by_path), 0)
    if end == 0:
        return ""
    setting = by_path[parts[:end]]
    old = [name for name, meant in MEANINGS.items() if setting == meant and name in raw]
    names = old if old and setting.upper() not in raw else [".".join((setting, *parts[end:])).upper()]
    return ", ".join(f"{PREFIX}{name}" for name in names) + ": "


def _check(settings: MeshSettings) -> None:
    """Check what settings mean together, before anything is opened."""
    check_drivers(settings)
    check_doors(settings)
    _ = settings.storage
    if settings.workers > 1 and not settings.gateway.listen:
        fix = "set SANDMESH_LISTEN (or SANDMESH_HOST and SANDMESH_PORT), or leave SANDMESH_WORKERS out"
        raise InvalidArgument(f"SANDMESH_WORKERS is {settings.workers}, but no address is shared: {fix}", {"fix": fix})
    allocator = settings.allocator
    if allocator.owner_grace_seconds < 3 * allocator.sweep_seconds:
        fix = "make it several times SANDMESH_SWEEP_SECONDS (SANDMESH_HEARTBEAT_SCAN_INTERVAL)"
        names = "SANDMESH_OWNER_GRACE_SECONDS (SANDMESH_HEARTBEAT_LOCK_TTL)"
        raise InvalidArgument(f"{names} is {allocator.owner_grace_seconds:g} s: {fix}", {"fix": fix})


def _check_driver(name: str) -> None:
    known = known_drivers()
    if name not in known:
        fix = f"choose one of these: {', '.join(known)}; or install the package that has it"
        raise InvalidArgument(
            f"SANDMESH_DRIVER (SANDMESH_CONTAINER_DEPLOYMENT): no driver {name!r} is installed: {fix}", {"fix": fix}
        )

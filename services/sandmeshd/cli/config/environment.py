"""Settings of a mesh: of the command line, else the environment, else a file, else this machine's own clients."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.host_clients import read_clients
from sandmeshd.cli.config.legacy_names import MEANINGS, REFUSED, idle, is_refused, translate
from sandmeshd.cli.config.sources import CONFIG, PREFIX, Stated, check_known, gather
from sandmeshd.drivers.api.registry import known_drivers
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.mesh.storage import check_workspaces

COMMAND_LINE = "the command line"
CLIENTS = "the configuration of pip and npm, or the proxy's variables"


def read_settings(
    config: Path | None = None, defaults: Mapping[str, object] | None = None, **given: Any
) -> MeshSettings:
    """Give the settings; what is given and not None goes before everything, `defaults` after everything.

    The file is `config`, else the one that SANDMESH_CONFIG names.

    Raises:
        InvalidArgument: One is unknown, contradicts another or does not fit; the message names the variable.
    """
    return read_with_sources(config, defaults, **given)[0]


def read_with_sources(
    config: Path | None = None, defaults: Mapping[str, object] | None = None, **given: Any
) -> tuple[MeshSettings, Mapping[str, str]]:
    """Give the settings, and by name where each that is not a default came from.

    Raises:
        InvalidArgument: As `read_settings`.
    """
    stated = _stated(config)
    own = {name.upper(): name for name in MeshSettings.model_fields}
    check_known({name: one for name, one in stated.items() if not is_refused(name)}, {*own, *MEANINGS, *REFUSED})
    found: dict[str, tuple[object, str]] = {name: (value, "default") for name, value in (defaults or {}).items()}
    found |= {name: (value, CLIENTS) for name, value in read_clients(os.environ).items()}
    found |= translate(stated)
    found |= {own[name]: (_read(own[name], one), one.source) for name, one in stated.items() if name in own}
    found |= {name: (value, COMMAND_LINE) for name, value in given.items() if value is not None}
    if "DEFAULT_MOUNT_DIR" in idle(stated, found.get("driver", ("bubblewrap", ""))[0]):
        del found["workspaces_directory"]
    settings = _made({name: value for name, (value, _) in found.items()}, stated)
    return settings, {name: source for name, (_, source) in found.items() if source != "default"}


def read_notes(settings: MeshSettings, config: Path | None = None) -> dict[str, str]:
    """Give the variables that are stated, ask for nothing and have no effect, each with why."""
    return {f"{PREFIX}{name}": why for name, why in idle(_stated(config), settings.driver).items()}


def _stated(config: Path | None) -> dict[str, Stated]:
    return gather(os.environ, config or (Path(os.environ[CONFIG]) if os.environ.get(CONFIG) else None))


def _read(name: str, one: Stated) -> object:
    """Read a text as the setting's type has it: lists and tables are JSON."""
    if get_origin(_plain(MeshSettings.model_fields[name].annotation)) not in (tuple, dict):
        return one.text
    try:
        return json.loads(one.text)
    except ValueError:
        form = 'JSON, like ["a"] or {"a": 1}'
        raise InvalidArgument(f"{PREFIX}{name.upper()} is {form}, not {one.text!r}", {"setting": name}) from None


def _plain(annotation: Any) -> Any:
    parts = [part for part in getattr(annotation, "__args__", ()) if part is not type(None)]
    return parts[0] if type(None) in getattr(annotation, "__args__", ()) and parts else annotation


def _made(values: Mapping[str, object], stated: Mapping[str, Stated]) -> MeshSettings:
    try:
        settings = MeshSettings.model_validate(dict(values))
    except ValidationError as error:
        problems = "; ".join(
            f"{_variable([str(part) for part in problem['loc']], stated)}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        )
        raise InvalidArgument(f"settings do not fit: {problems}") from None
    _check(settings)
    return settings


def _variable(parts: list[str], stated: Mapping[str, Stated]) -> str:
    """Name a setting as it was stated: perhaps by its old name."""
    old = [name for name, setting in MEANINGS.items() if parts and setting == parts[0] and name in stated]
    names = old if old and parts[0].upper() not in stated else [".".join(parts).upper()]
    return ", ".join(f"{PREFIX}{name}" for name in names)


def _check(settings: MeshSettings) -> None:
    """Check what settings say together, before anything is opened."""
    _check_driver(settings.driver)
    check_workspaces(settings, settings.driver)
    _ = settings.storage
    if settings.workers > 1 and not settings.listen:
        fix = "state SANDMESH_LISTEN (or SANDMESH_HOST and SANDMESH_PORT), or leave SANDMESH_WORKERS out"
        raise InvalidArgument(f"SANDMESH_WORKERS is {settings.workers}, but no address is shared: {fix}", {"fix": fix})
    if settings.owner_grace_seconds < 3 * settings.sweep_seconds:
        fix = "make it several times SANDMESH_SWEEP_SECONDS (SANDMESH_HEARTBEAT_SCAN_INTERVAL)"
        stated = "SANDMESH_OWNER_GRACE_SECONDS (SANDMESH_HEARTBEAT_LOCK_TTL)"
        raise InvalidArgument(f"{stated} is {settings.owner_grace_seconds:g} s: {fix}", {"fix": fix})


def _check_driver(name: str) -> None:
    known = known_drivers()
    if name not in known:
        fix = f"choose one of these: {', '.join(known)}; or install the package that has it"
        raise InvalidArgument(
            f"SANDMESH_DRIVER (SANDMESH_CONTAINER_DEPLOYMENT): no driver {name!r} is installed: {fix}", {"fix": fix}
        )

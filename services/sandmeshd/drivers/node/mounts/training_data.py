"""Data of training environments that the administrator gives: it is in no package and no image.

It is kept once a node, for all meshes of a user, and sandboxes of the templates that name it see it read-only.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandmesh.errors import CapabilityMissing, InvalidArgument
from sandmeshd.drivers.node.builds import building, is_complete
from sandmeshd.drivers.node.readability import open_to_all
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from sandmeshd.templates import Template

INSIDE: Final = "/opt/data"
"""Where sandboxes see it."""

APPWORLD_VERSION: Final = "0.1.0"
"""The version of data that the package in `templates/environments/appworld.toml` takes."""

_ABOUT: Final = "sandmesh.json"
_APPWORLD_PARTS: Final = ("tasks", "datasets", "api_docs")


@dataclass(frozen=True)
class TrainingData:
    """What was found in a directory of data."""

    folder: Path
    version: str
    tasks: int


def find_data(paths: MeshPaths, name: str) -> TrainingData | None:
    """Return the data of a name that this node has; None where it has none."""
    folder = _place(paths, name).resolve()
    if not is_complete(folder):
        return None
    about = json.loads((folder / _ABOUT).read_text())
    return TrainingData(folder, about["version"], about["tasks"])


def data_mounts(template: Template, paths: MeshPaths) -> list[tuple[Path, str]]:
    """Return what a template's sandboxes see of the administrator's data, with the places inside.

    Raises:
        CapabilityMissing: The node does not have it.
    """
    if not template.data:
        return []
    found = find_data(paths, template.data)
    if found is None:
        fix = f"sandmesh training prepare {template.data} --data PATH"
        message = f"this node does not have the data of {template.data!r}, which no package ships: {fix}"
        raise CapabilityMissing(message, {"needs": f"data {template.data}", "fix": fix, "template": template.name})
    return [(found.folder, INSIDE)]


async def prepare_data(paths: MeshPaths, name: str, source: Path) -> TrainingData:
    """Check data of the administrator's and copy it to where sandboxes see it from now on.

    Raises:
        InvalidArgument: Nothing takes data of this name, or it is incomplete or of another version.
    """
    if name not in _CHECKS:
        known = ", ".join(_CHECKS)
        raise InvalidArgument(f"no environment takes data as {name!r}: choose from {known}", {"known": known})
    found = await asyncio.to_thread(_CHECKS[name], source)
    link = _place(paths, name)
    before = link.resolve()
    target = link.with_name(f"{name}-{await asyncio.to_thread(_digest, found.folder)}")
    async with building(target) as fresh:
        if fresh is not None:
            await asyncio.to_thread(_copy, found, fresh)
    new = link.with_name(f".{name}.link")
    new.unlink(missing_ok=True)
    new.symlink_to(target.name)
    new.replace(link)
    # Sandboxes that see the data from before keep it until they end.
    for stale in link.parent.glob(f"{name}-*"):
        if stale not in (target, before):
            await asyncio.to_thread(remove_tree, stale)
    return TrainingData(target, found.version, found.tasks)


def _place(paths: MeshPaths, name: str) -> Path:
    return paths.training_data / name


def _copy(found: TrainingData, fresh: Path) -> None:
    for part in sorted(found.folder.iterdir()):
        if part.is_dir():
            shutil.copytree(part, fresh / part.name)
        else:
            shutil.copyfile(part, fresh / part.name)
    (fresh / _ABOUT).write_text(json.dumps({"version": found.version, "tasks": found.tasks}))
    open_to_all(fresh)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _check_appworld(source: Path) -> TrainingData:
    """Check what `appworld download data` makes: the folder `data`, or the one that has it."""
    folder = source / "data" if (source / "data" / "tasks").is_dir() else source
    missing = [name for name in _APPWORLD_PARTS if not (folder / name).is_dir()]
    if missing:
        what = f"{folder} is not data of AppWorld: it has no {', '.join(missing)}"
        raise InvalidArgument(f"{what}; give the folder that `appworld download data` makes", {"path": str(folder)})
    named = {line for path in (folder / "datasets").glob("*.txt") for line in path.read_text().split()}
    lost = sorted(task for task in named if not (folder / "tasks" / task / "specs.json").is_file())
    if lost or not named:
        what = f"it lacks {len(lost)} of {len(named)} tasks, as {lost[0]}" if lost else "its datasets name no task"
        raise InvalidArgument(f"the data in {folder} is incomplete: {what}; download it again", {"path": str(folder)})
    versions = {_version(folder / "tasks" / task / "specs.json") for task in named}
    if versions != {APPWORLD_VERSION}:
        what = f"the data in {folder} is of version {', '.join(sorted(versions - {APPWORLD_VERSION}))}"
        fix = f"the package appworld of this release takes {APPWORLD_VERSION}"
        raise InvalidArgument(f"{what}: {fix}", {"path": str(folder), "fix": fix})
    return TrainingData(folder, APPWORLD_VERSION, len(named))


def _version(path: Path) -> str:
    try:
        specs: Any = json.loads(path.read_text())
        return str(specs["db_version"])
    except (ValueError, KeyError, TypeError):
        raise InvalidArgument(f"{path} is not the description of a task: download the data again") from None


_CHECKS: Final[Mapping[str, Callable[[Path], TrainingData]]] = {"appworld": _check_appworld}

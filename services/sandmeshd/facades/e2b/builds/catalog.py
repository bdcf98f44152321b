"""Names, tags and start values of what clients built: a file of ids. A build's owner is that of its snapshot."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from sandmesh.inputs import Limits
from sandmesh.mesh import MeshAsync
from sandmesh.shared.files.atomic_file import open_replacement
from sandmeshd.facades.e2b.control.templates import TEMPLATES, mesh_template
from sandmeshd.facades.e2b.errors import ApiError

DEFAULT_TAG: Final = "default"
NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,126}[a-z0-9])?")
TAG: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

log = structlog.get_logger()


class CatalogBuild(BaseModel):
    """A snapshot, and what sandboxes of it start with."""

    model_config = ConfigDict(frozen=True)

    build_id: str
    snapshot_id: str
    of_template: bool = False
    """Whether a template was built, and not a sandbox saved."""

    environment: dict[str, str] = Field(default_factory=dict[str, str])
    workdir: str = ""
    user: str = ""
    start: str = ""
    ready: str = ""
    cpus: float | None = None
    memory: int | None = None
    """Bytes."""

    created: float = Field(default_factory=time.time)

    @property
    def limits(self) -> Limits | None:
        """What its sandboxes may use, None where the build says nothing."""
        return Limits(memory=self.memory, cpus=self.cpus) if self.cpus or self.memory else None


class Tag(BaseModel):
    """The build that a tag is at."""

    model_config = ConfigDict(frozen=True)

    build_id: str
    assigned: float = Field(default_factory=time.time)


class CatalogTemplate(BaseModel):
    """The builds of a name."""

    template_id: str
    name: str
    builds: dict[str, CatalogBuild] = Field(default_factory=dict[str, CatalogBuild])
    tags: dict[str, Tag] = Field(default_factory=dict[str, Tag])

    def tagged(self, tag: str) -> CatalogBuild | None:
        """Return the build of a tag."""
        found = self.tags.get(tag)
        return None if found is None else self.builds.get(found.build_id)

    def tags_of(self, build_id: str) -> list[str]:
        """Return the tags of a build."""
        return sorted(tag for tag, at in self.tags.items() if at.build_id == build_id)

    def drop(self, build_id: str) -> None:
        """Forget a build."""
        self.builds.pop(build_id, None)
        self.tags = {tag: at for tag, at in self.tags.items() if at.build_id != build_id}


@dataclass(frozen=True)
class Origin:
    """What a sandbox starts from."""

    template: str
    """The mesh's."""

    snapshot_id: str = ""
    build: CatalogBuild | None = None


Owned = Mapping[str, str]
"""The mesh's templates of a caller's snapshots, by id."""

_FILE: Final = TypeAdapter(dict[str, CatalogTemplate])


class Catalog:
    """What clients built, by template."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._templates = _read(path)

    def owned(self, snapshots: Owned) -> Iterator[CatalogTemplate]:
        """Yield a caller's templates."""
        for template in self._templates.values():
            if any(build.snapshot_id in snapshots for build in template.builds.values()):
                yield template

    def template(self, name: str, snapshots: Owned) -> CatalogTemplate | None:
        """Return a caller's template by its id or name, without a tag."""
        return next(
            (template for template in self.owned(snapshots) if name in (template.template_id, template.name)), None
        )

    def build(self, name: str, snapshots: Owned) -> CatalogBuild | None:
        """Return a caller's build by the id or name of its template, with a tag behind a colon or without."""
        bare, _, tag = name.partition(":")
        found = self.template(bare, snapshots)
        return None if found is None else found.tagged(tag or DEFAULT_TAG)

    async def origin(self, mesh: MeshAsync, name: str) -> Origin:
        """Return what a sandbox of this name is to start from; the mesh may have no such template.

        Raises:
            ApiError: The template has no build of that tag.
        """
        bare = name.partition(":")[0]
        named = any(bare in (template.template_id, template.name) for template in self._templates.values())
        if not named and not name.startswith("snap_"):
            return Origin(mesh_template(name))
        snapshots = await own_snapshots(mesh)
        if name in snapshots:
            return Origin(snapshots[name], name)
        build = self.build(name, snapshots)
        if build is not None and build.snapshot_id in snapshots:
            return Origin(snapshots[build.snapshot_id], build.snapshot_id, build)
        found = self.template(bare, snapshots)
        if found is not None:
            known = ", ".join(sorted(found.tags)) or "none"
            raise ApiError(404, f"template '{name}' not found: the tags of {found.name} are {known}")
        return Origin(mesh_template(name))

    async def add(self, template: CatalogTemplate, build: CatalogBuild, tags: list[str]) -> None:
        """Add a build to a template, under tags that other builds lose."""
        found = self._templates.setdefault(template.template_id, template)
        found.builds[build.build_id] = build
        found.tags |= {tag: Tag(build_id=build.build_id) for tag in tags}
        await self.save()

    async def forget(self, snapshots: set[str]) -> None:
        """Forget the builds of snapshots, and templates without a build."""
        for template in list(self._templates.values()):
            for build in list(template.builds.values()):
                if build.snapshot_id in snapshots:
                    template.drop(build.build_id)
            if not template.builds:
                del self._templates[template.template_id]
        await self.save()

    def names_of(self, snapshot_id: str) -> list[str]:
        """Return the names of a snapshot, each with its tag."""
        builds = ((template, build) for template in self._templates.values() for build in template.builds.values())
        found = ((one, build.build_id) for one, build in builds if build.snapshot_id == snapshot_id)
        return [f"{one.name}:{tag}" for one, build_id in found for tag in one.tags_of(build_id)]

    def of_templates(self) -> set[str]:
        """Return the snapshots that are builds of templates."""
        builds = (build for template in self._templates.values() for build in template.builds.values())
        return {build.snapshot_id for build in builds if build.of_template}

    async def save(self) -> None:
        """Write the file."""
        await asyncio.to_thread(_write, self._path, _FILE.dump_json(self._templates))


async def own_snapshots(mesh: MeshAsync) -> Owned:
    """Return the templates of the caller's snapshots, by id."""
    return {snapshot.snapshot_id: snapshot.sandbox_type for snapshot in (await mesh.snapshots.list()).snapshots}


def read_name(text: str) -> tuple[str, str]:
    """Return a name and its tag, which may be empty.

    Raises:
        ApiError: It is not a name.
    """
    name, colon, tag = text.partition(":")
    if NAME.fullmatch(name) is None or name.startswith("snap_"):
        raise ApiError(400, f"{text!r} is not a name: use lower case letters, digits, '-', '_' and '.'")
    if colon and TAG.fullmatch(tag) is None:
        raise ApiError(400, f"{tag!r} is not a tag: use letters, digits, '-', '_' and '.'")
    if name in TEMPLATES:
        raise ApiError(409, f"{name!r} is a template of the mesh: choose another name")
    return name, tag


def _read(path: Path) -> dict[str, CatalogTemplate]:
    try:
        return _FILE.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        # The snapshots are still there by their ids.
        log.warning("the names of E2B's clients cannot be read", path=str(path), error=str(error))
        return {}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_replacement(str(path), 0o600) as file:
        file.write(data)

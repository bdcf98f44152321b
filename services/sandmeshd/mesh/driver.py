"""The driver of a mesh, by the name in its settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar

from pydantic import BaseModel, SecretStr

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import InvalidArgument
from sandmeshd.auth.stream_sealer import StreamSealer
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.registry import DriverPlugin, find_driver, find_drivers, open_plugin
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.decorators import WorkspaceKeeper, reserving, with_volumes
from sandmeshd.facades.registry import find_doors
from sandmeshd.mesh.plugin_settings import validate
from sandmeshd.mesh.settings import MeshSettings, mesh_secret
from sandmeshd.runtime.settings import Variable, variables_of
from sandmeshd.storage import StorageSettings, StoredFolders, open_storage
from sandmeshd.templates import Template

Own = TypeVar("Own", bound=DriverSettings)


def open_driver(
    settings: MeshSettings, templates: Mapping[str, Template] | None = None, *, stands_by: bool = True
) -> AbstractAsyncContextManager[Driver]:
    """Open the driver that a mesh's settings name.

    Raises:
        InvalidArgument: A setting does not fit, or has no effect on that driver.
        RuntimeUnavailable: There is none of that name, or a package that it needs is not installed.
    """
    own = driver_settings(settings)
    egress = own.egress.model_copy(update={"mesh_secret": _known_secret(settings)})
    own = own.model_copy(update={"stands_by": stands_by, "egress": egress})
    return open_plugin(settings.driver, own, templates)


def _known_secret(settings: MeshSettings) -> SecretStr | None:
    # A mesh that never ran has no directory for it, and is only looked at.
    known = settings.mesh_secret is not None or settings.paths.state.is_dir()
    return SecretStr(mesh_secret(settings)) if known else None


async def describe_driver(settings: MeshSettings) -> driver_pb2.GetInfoResponse:
    """Open a driver by itself and return what it reports: its version, capabilities and templates.

    Raises:
        RuntimeUnavailable: It does not work on this machine.
    """
    async with open_driver(settings) as driver:
        return await driver.get_info(driver_pb2.GetInfoRequest())


def driver_settings(settings: MeshSettings) -> DriverSettings:
    """Return the settings of the driver that a mesh's settings name.

    Raises:
        InvalidArgument: One does not fit, or has no effect on that driver; the message names setting and driver.
        RuntimeUnavailable: There is none of that name, or a package that it needs is not installed.
    """
    plugin = find_driver(settings.driver)
    check_workspaces(settings, plugin)
    return settings_for(settings, settings.driver, plugin.settings)


def check_drivers(settings: MeshSettings) -> None:
    """Check the settings of the chosen driver, and of every other driver that has some.

    Raises:
        InvalidArgument: One does not fit, or has no effect on the chosen driver.
        RuntimeUnavailable: The chosen driver cannot be loaded, or there are two of its name.
    """
    driver_settings(settings)
    for name, plugin in find_drivers().items():
        own = variables_of(plugin.settings).keys() - variables_of(DriverSettings).keys()
        if own & settings.drivers.keys():
            settings_for(settings, name, plugin.settings)


def check_workspaces(settings: MeshSettings, plugin: DriverPlugin) -> None:
    """Refuse a directory for workspaces in use where the driver has them elsewhere.

    Raises:
        InvalidArgument: One is set, and the driver keeps no directories.
    """
    if settings.workspaces_directory is not None and not plugin.settings.keeps_directories:
        fix = f"leave it out: the driver {settings.driver} keeps workspaces in its containers"
        name = "SANDMESH_WORKSPACES_DIRECTORY (SANDMESH_DEFAULT_MOUNT_DIR)"
        raise InvalidArgument(f"{name} is {settings.workspaces_directory}: {fix}", {"fix": fix})


def settings_for(settings: MeshSettings, name: str, cls: type[Own]) -> Own:
    """Return the settings of a driver by its name and settings class, chosen or not.

    Raises:
        InvalidArgument: One does not fit; the message names setting and driver.
    """
    of_mesh: dict[str, Any] = {
        "paths": settings.paths,
        "node_id": settings.node_id,
        "ends_with_driver": settings.ephemeral,
        "own_workspaces": settings.ephemeral,
    }
    if "image_store" in cls.model_fields:
        of_mesh["image_store"] = settings.image_store
    return validate("driver", name, cls, settings.drivers, of_mesh)


def plain_values(settings: MeshSettings) -> list[tuple[Variable, Any]]:
    """Return every variable with its value as JSON has it, secrets hidden: the mesh's, then those of its plugins.

    A driver that is not chosen and lacks required settings is left out.
    """
    sources: list[BaseModel] = [settings, driver_settings(settings)]
    for name, plugin in find_drivers().items():
        with suppress(InvalidArgument):
            sources.append(settings_for(settings, name, plugin.settings))
    sources += [validate("door", name, door.settings, settings.doors) for name, door in find_doors().items()]
    found: dict[str, tuple[Variable, Any]] = {}
    for source in sources:
        dump = source.model_dump(mode="json")
        found = {n: (one, one.read_plain(dump)) for n, one in variables_of(type(source)).items()} | found
    return list(found.values())


@asynccontextmanager
async def decorated(driver: Driver, settings: MeshSettings) -> AsyncGenerator[Driver]:
    """Yield the driver of a mesh's settings with a reserve of descriptors, and the mesh's storage if it has one."""
    async with _with_storage(driver, settings.storage, settings) as stored:
        with reserving(stored) as reserved:
            yield reserved


@asynccontextmanager
async def _with_storage(
    driver: Driver, storage: StorageSettings | None, settings: MeshSettings
) -> AsyncGenerator[Driver]:
    if storage is None:
        yield driver
        return
    sealer = StreamSealer(mesh_secret(settings), "browser profiles")
    async with (
        open_storage(storage) as snapshots,
        with_volumes(driver, StoredFolders(snapshots), driver_settings(settings)) as with_both,
    ):
        yield WorkspaceKeeper(with_both, snapshots, sealer)

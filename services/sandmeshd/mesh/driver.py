"""The driver of a mesh, by the name that its settings have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from pydantic import BaseModel

from sandmeshd.drivers.api.interface import Driver
from sandmeshd.drivers.api.registry import find_driver
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.engine.runtimes import KINDS
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.mesh.storage import check_workspaces
from sandmeshd.templates import Template


def open_driver(
    settings: MeshSettings, templates: Mapping[str, Template] | None = None, *, stands_by: bool = True
) -> AbstractAsyncContextManager[Driver]:
    """Open the driver that a mesh's settings name, as its own `open_driver` does.

    Raises:
        RuntimeUnavailable: There is none of that name, or a package that it needs is not installed.
    """
    return find_driver(settings.driver)(driver_settings(settings, stands_by=stands_by), templates=templates)


def driver_settings(settings: MeshSettings, *, stands_by: bool = True) -> BaseModel:
    """Give the driver's own settings.

    Raises:
        InvalidArgument: One has no effect on that driver.
    """
    check_workspaces(settings, settings.driver)
    if settings.driver in KINDS:
        return docker_settings(settings)
    return BubblewrapSettings(
        paths=settings.paths,
        node_id=settings.node_id,
        sandbox_uid=settings.sandbox_uid,
        ends_with_driver=settings.ephemeral,
        python=settings.python,
        way=settings.bubblewrap_way,
        stands_by=stands_by,
        egress=settings.egress,
        readonly_mounts=settings.readonly_mounts,
        workspace_roots=settings.workspace_roots,
        own_workspaces=settings.ephemeral,
        snapshot_bytes=settings.snapshot_limit,
    )


def docker_settings(settings: MeshSettings) -> DockerSettings:
    """Give the settings of the drivers over Docker: gvisor's where that is chosen, else docker's."""
    return DockerSettings(
        driver="gvisor" if settings.driver == "gvisor" else "docker",
        paths=settings.paths,
        node_id=settings.node_id,
        url=settings.docker_url,
        certificates=settings.docker_certificates,
        agent_link=settings.docker_agent_link,
        publish_address=settings.docker_publish_address,
        agent_ports=settings.docker_agent_ports,
        registry=settings.registry,
        namespace=settings.image_namespace,
        tag=settings.image_tag,
        ends_with_driver=settings.ephemeral,
        readonly_mounts=settings.readonly_mounts,
        workspace_roots=settings.workspace_roots,
        own_workspaces=settings.ephemeral,
        snapshot_bytes=settings.snapshot_limit,
        egress=settings.egress,
    )

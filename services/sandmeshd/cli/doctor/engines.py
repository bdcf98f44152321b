"""Checks this machine's Docker engine, and whether gVisor is installed on it."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sandmesh.errors import RuntimeUnavailable, SandmeshError
from sandmeshd.cli.doctor.findings import Finding, bad, good, unknown, warning
from sandmeshd.drivers.engine.gvisor.runtime import check_runtime
from sandmeshd.drivers.engine.images.build import ImageBuilder
from sandmeshd.drivers.engine.runtimes import PROFILES
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import settings_for
from sandmeshd.templates import open_catalog

MACHINE = "machine"
TIMEOUT_SECONDS = 5.0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(str(self._path))


def check_engine(settings: MeshSettings) -> Iterator[Finding]:
    """Check the engine that the settings name, gVisor on it, and the images that no mesh builds by itself."""
    url = settings_for(settings, "docker", DockerSettings).url
    if not url.startswith("unix://"):
        yield unknown(MACHINE, "docker", f"{url} is checked when a mesh with the docker driver starts")
        return
    path = Path(url.removeprefix("unix://"))
    docker = _check_docker(path)
    yield docker
    yield _check_gvisor(settings, path, docker)
    if path.exists() and not docker.fix:
        yield from _check_images(settings, path)


def _check_docker(path: Path) -> Finding:
    if not path.exists():
        return unknown(MACHINE, "docker", f"no engine at {path}; the bubblewrap driver needs none")
    if not os.access(path, os.R_OK | os.W_OK):
        fix = "to use it, add this user to the group docker"
        return warning(MACHINE, "docker", f"{path} is closed to this user", fix)
    return good(MACHINE, "docker", str(path))


def _check_gvisor(settings: MeshSettings, path: Path, docker: Finding) -> Finding:
    if docker.fix or not path.exists():
        return unknown(MACHINE, "gvisor", "not checked: it runs on Docker")
    try:
        check_runtime(_get_info(path), ends_with_driver=True)
    except RuntimeUnavailable as error:
        seen = error.message.removesuffix(f": {error.facts['fix']}")
        if settings.driver == "gvisor":
            return bad(MACHINE, "gvisor", seen, error.facts["fix"])
        return unknown(MACHINE, "gvisor", f"{seen}; to use it: {error.facts['fix']}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return unknown(MACHINE, "gvisor", f"the engine at {path} does not answer: {error}")
    return good(MACHINE, "gvisor", "runsc is registered with the engine as the driver needs it")


def _check_images(settings: MeshSettings, path: Path) -> Iterator[Finding]:
    """Check the images of templates with Debian packages, which only `sandmesh build` makes."""
    builder = ImageBuilder(settings_for(settings, "docker", DockerSettings))
    chosen = settings.driver if settings.driver in PROFILES else ""
    try:
        packaged = [
            template for template in open_catalog(settings.extensions, settings.templates).values() if template.system
        ]
        for name in (one.name for one in packaged if one.image_is_shipped and not one.on_demand):
            image = _get(path, f"/images/{builder.image_name(name)}/json")
            fix = f"sandmesh build {name} --driver {chosen or 'docker'}"
            if image is not None:
                yield good(MACHINE, f"image of {name}", f"{builder.image_name(name)}, {image['Size'] / 1e6:.0f} MB")
            elif chosen:
                yield warning(MACHINE, f"image of {name}", f"the engine has no {builder.image_name(name)}", fix)
            else:
                yield unknown(MACHINE, f"image of {name}", f"not on the engine; to use it there: {fix}")
    except (OSError, http.client.HTTPException, ValueError, KeyError, SandmeshError):
        # The findings of gVisor and of the mesh name the reason.
        return


def _get_info(path: Path) -> Mapping[str, Any]:
    return _get(path, "/info") or {}


def _get(path: Path, what: str) -> Mapping[str, Any] | None:
    """Return what the engine has of a path of its API, None where it has nothing."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", what)
        response = connection.getresponse()
        found: dict[str, Any] = json.loads(response.read())
        return found if response.status == HTTPStatus.OK else None
    finally:
        connection.close()

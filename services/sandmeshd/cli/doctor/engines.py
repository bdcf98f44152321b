"""Checks this machine's Docker engine, and whether gVisor is installed on it."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.cli.doctor.findings import Finding, bad, good, unknown, warning
from sandmeshd.drivers.engine.gvisor.runtime import check_runtime
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import settings_for

MACHINE = "machine"
TIMEOUT_SECONDS = 5.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_SECONDS)
        self.sock.connect(str(self._path))


def check_engine(settings: MeshSettings) -> Iterator[Finding]:
    """Check the engine that the settings name, and gVisor on it."""
    url = settings_for(settings, "docker", DockerSettings).url
    if not url.startswith("unix://"):
        yield unknown(MACHINE, "docker", f"{url} is checked when a mesh with the docker driver starts")
        return
    path = Path(url.removeprefix("unix://"))
    docker = _check_docker(path)
    yield docker
    yield _check_gvisor(settings, path, docker)


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


def _get_info(path: Path) -> Mapping[str, Any]:
    connection = _Connection(path)
    try:
        connection.request("GET", "/info")
        info: dict[str, Any] = json.loads(connection.getresponse().read())
        return info
    finally:
        connection.close()

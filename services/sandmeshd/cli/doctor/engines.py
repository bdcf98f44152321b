"""Looks at this machine's Docker engine, and whether sandboxes on it may have gVisor's kernel."""

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
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.gvisor.runtime import check_runtime
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import settings_for

MACHINE = "machine"
ANSWER_SECONDS = 5.0


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("engine", timeout=ANSWER_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_SECONDS)
        self.sock.connect(str(self._path))


def look_at_engine(settings: MeshSettings) -> Iterator[Finding]:
    """Give what there is to say of the engine that the settings name, and of gVisor on it."""
    url = settings_for(settings, "docker", DockerSettings).url
    if not url.startswith("unix://"):
        yield unknown(MACHINE, "docker", f"{url} is asked when a mesh with the docker driver starts")
        return
    path = Path(url.removeprefix("unix://"))
    found = _docker(path)
    yield found
    yield _gvisor(settings, path, found)


def _docker(path: Path) -> Finding:
    if not path.exists():
        return unknown(MACHINE, "docker", f"no engine at {path}; the bubblewrap driver needs none")
    if not os.access(path, os.R_OK | os.W_OK):
        fix = "add this user to the group docker, where you want to use it"
        return warning(MACHINE, "docker", f"{path} is closed to this user", fix)
    return good(MACHINE, "docker", str(path))


def _gvisor(settings: MeshSettings, path: Path, docker: Finding) -> Finding:
    if docker.fix or not path.exists():
        return unknown(MACHINE, "gvisor", "not looked for: it runs on Docker")
    try:
        check_runtime(_info(path), ends_with_driver=True)
    except RuntimeUnavailable as error:
        seen = error.message.removesuffix(f": {error.facts['fix']}")
        if settings.driver == "gvisor":
            return bad(MACHINE, "gvisor", seen, error.facts["fix"])
        return unknown(MACHINE, "gvisor", f"{seen}; to use it: {error.facts['fix']}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return unknown(MACHINE, "gvisor", f"the engine at {path} does not answer: {error}")
    return good(MACHINE, "gvisor", "runsc is registered with the engine as its driver needs it")


def _info(path: Path) -> Mapping[str, Any]:
    connection = _Connection(path)
    try:
        connection.request("GET", "/info")
        found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found
    finally:
        connection.close()

"""The mesh as separate containers, as deploy/compose.yaml has it: the demo is done by a client with a token."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from sandmeshd.drivers.engine.images.build import MESH
from tests.engine import build_image, query

pytestmark = [pytest.mark.needs("root", "docker", "docker-compose"), pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ["docker-compose", "--file", str(ROOT / "deploy" / "compose.yaml")]
TOKEN = ("sandmesh", "token", "create", "demo", "--user", "ada", "-o", "json")
REMOVAL_SECONDS = 60.0
MESH_USER = 10001
RESOURCES = {"containers": "/containers/json?all=1", "volumes": "/volumes", "networks": "/networks"}


@dataclass(frozen=True)
class Deployment:
    """The services' containers, by the project's name, and what their clients are told."""

    project: str
    environment: dict[str, str]
    client: dict[str, str]

    def run(self, *arguments: str) -> str:
        """Run docker-compose, or what it runs in a service."""
        done = subprocess.run(
            [*COMPOSE, *arguments], env=self.environment, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _secrets(folder: Path) -> dict[str, str]:
    secret = folder / "secret"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    made = [sys.executable, "-m", "sandmeshd.cli.user", "certificate", "--name", "localhost"]
    subprocess.run([*made, "--directory", str(folder / "tls")], check=True, capture_output=True)
    for path in (secret, folder / "tls", *(folder / "tls").iterdir()):
        os.chown(path, MESH_USER, MESH_USER)
    return {"MESH_SECRET_FILE": str(secret), "MESH_TLS_DIRECTORY": str(folder / "tls")}


@contextmanager
def _deployed(engine: str, folder: Path, runtime: Path) -> Generator[Deployment]:
    port, project = _free_port(), f"smt{secrets.token_hex(4)}"
    variables = {
        "DOCKER_HOST": engine,
        "COMPOSE_PROJECT_NAME": project,
        "SANDMESH_MESH_ID": project,
        "MESH_DOCKER_SOCKET": engine.removeprefix("unix://"),
        "MESH_DOCKER_GROUP": str(Path(engine.removeprefix("unix://")).stat().st_gid),
        "MESH_RUNTIME_DIRECTORY": str(runtime),
        "MESH_PUBLISH": f"127.0.0.1:{port}",
        **_secrets(folder),
    }
    client = {"SANDMESH_ADDRESS": f"grpcs://localhost:{port}", "SANDMESH_CA_FILE": f"{folder}/tls/ca.pem"}
    deployment = Deployment(project, {**os.environ, **variables}, client)
    try:
        deployment.run("up", "--detach")
        yield deployment
    finally:
        deployment.run("down", "--volumes", "--timeout", "20")


def _left(engine: str, deployment: Deployment) -> list[str]:
    found = [str(query(engine, path)) for path in RESOURCES.values()]
    return [kind for kind, text in zip(RESOURCES, found, strict=True) if deployment.project in text]


def _demo(deployment: Deployment, token: str, folder: Path) -> str:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), str(folder / "out")]
    environment = {**os.environ, **deployment.client, "SANDMESH_TOKEN": token}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    return done.stdout + done.stderr


def _of_sandboxes(engine: str, deployment: Deployment, runtime: Path) -> list[str]:
    """Name what there is of sandboxes: containers, and the sockets of agents, whose folders are removed after those."""
    mine = json.dumps({"label": [f"dev.sandmesh.mesh={deployment.project}"]})
    containers = [str(one["Names"]) for one in query(engine, f"/containers/json?all=1&filters={quote(mine)}")]
    # Not a glob: it fails by what is removed meanwhile.
    files = [Path(folder, name) for folder, _, names in os.walk(runtime) for name in names]
    return [*containers, *(str(path) for path in files if path.is_socket())]


def _stays(engine: str, deployment: Deployment, runtime: Path) -> list[str]:
    """Wait for the removal of sandboxes, which goes on after they were given back; give what stays."""
    ends = time.monotonic() + REMOVAL_SECONDS
    while (left := _of_sandboxes(engine, deployment, runtime)) and time.monotonic() < ends:
        deployment.run("exec", "-T", "gateway", "sandmesh", "ls")
    return left


def _users(engine: str, deployment: Deployment) -> dict[str, str]:
    """Return the uid of each service's first process, as the machine sees it."""
    found: dict[str, str] = {}
    for one in query(engine, "/containers/json"):
        if one["Labels"].get("com.docker.compose.project") == deployment.project:
            pid = query(engine, f"/containers/{one['Id']}/json")["State"]["Pid"]
            found[one["Labels"]["com.docker.compose.service"]] = str(Path(f"/proc/{pid}").stat().st_uid)
    return found


def test_the_demo_is_done_by_services_in_containers_of_their_own(engine: str, tmp_path: Path) -> None:
    build_image(engine, MESH)
    # An agent's socket is below it, whose path is short.
    runtime = Path(f"/run/smt-{secrets.token_hex(4)}")
    try:
        with _deployed(engine, tmp_path, runtime) as deployment:
            # It is healthy once it serves, and everybody it asks was before it was started.
            deployment.run(
                "exec", "-T", "gateway", "sh", "-c", "until alive unix:/run/gateway/gateway.sock; do :; done"
            )
            services = ("store", "driver", "allocator", "broker", "gateway")
            assert _users(engine, deployment) == dict.fromkeys(services, str(MESH_USER))
            assert "UNAUTHENTICATED" in _demo(deployment, "", tmp_path)
            made = deployment.run("exec", "-T", "gateway", *TOKEN)
            shown = _demo(deployment, json.loads(made)["secret"], tmp_path)
            assert "2014-2024: 2.58 ppm a year" in shown
            assert "unreachable" in shown
            assert (tmp_path / "out" / "co2.png").exists()
            assert _stays(engine, deployment, runtime) == []
        assert _left(engine, deployment) == []
    finally:
        shutil.rmtree(runtime, ignore_errors=True)


def test_the_image_of_the_services_has_at_most_400_megabytes(engine: str) -> None:
    build_image(engine, MESH)
    assert query(engine, "/images/sandmesh/mesh:latest/json")["Size"] <= 400e6

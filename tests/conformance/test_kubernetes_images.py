"""Sandboxes from images without an agent on the kubernetes driver: a real cluster pulls them from a real registry."""

from __future__ import annotations

import base64
import dataclasses
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandmesh import errors
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance import Requirement
from sandmeshd.drivers.conformance.inside import call, run
from sandmeshd.drivers.conformance.requirements import calls, files, isolation, lifecycle
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths
from tests.cluster import NAMESPACE, Cluster
from tests.conformance.clusters import direct, leftovers, settings_of, subject_of
from tests.image_layouts import entry, file_entry, make_image, make_tar
from tests.image_roots import busybox_root
from tests.registry import Registry, running_registry

pytestmark = [
    pytest.mark.needs("root", "docker", "kubernetes", "registry", "busybox"),
    pytest.mark.timeout(900),
]

SECRET = "registry"  # noqa: S105 - the name of one
BASE = "team/base:1"
APP: dict[str, Any] = {
    "User": "app",
    "WorkingDir": "/srv/app",
    "Env": ["FLAVOUR=salt", "LD_PRELOAD=/nowhere.so", "PATH=/bin"],
    "Entrypoint": ["sh", "-c", "echo $0 $FLAVOUR; pwd; id -u"],
    "Cmd": ["cmd"],
}
OUT = """
import os, socket
def tried(uid, kind, target):
    os.seteuid(uid)
    try:
        with socket.socket(socket.AF_INET, kind) as one:
            one.settimeout(5)
            one.connect(target)
            return one.send(b"x")
    except OSError as error:
        return type(error).__name__, error.errno
    finally:
        os.seteuid(0)
gateway = [line.split()[2] for line in open("/proc/net/route") if line.split()[1] == "00000000"][0]
address = socket.inet_ntoa(bytes.fromhex(gateway)[::-1])
kinds = socket.SOCK_STREAM, socket.SOCK_DGRAM
print({tried(uid, kind, (address, 9)) for uid in (0, 900, 1234) for kind in kinds})
"""
SEEN = 'grep -E "^(Cap[EB]|NoNew)" /proc/self/status'
OF_IMAGES: tuple[Requirement, ...] = (
    lifecycle.a_created_sandbox_runs_commands,
    lifecycle.a_deleted_sandbox_leaves_nothing,
    lifecycle.sandboxes_outlive_their_driver_and_are_adopted,
    files.names_of_files_are_bytes,
    calls.a_process_has_a_terminal_of_its_own,
    calls.kernels_of_a_sandbox_are_apart,
    isolation.user_code_has_no_privileges,
    isolation.user_code_cannot_touch_the_agent,
    isolation.user_code_cannot_make_dangerous_system_calls,
)


@pytest.fixture(scope="module")
def registry(cluster: Cluster) -> Generator[Registry]:
    """Give a registry with images, whose password the cluster has as a Secret."""
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as made, running_registry(Path(made)) as one:
        _fill(one, cluster)
        yield one


def _fill(registry: Registry, cluster: Cluster) -> None:
    layers = busybox_root()
    registry.push(make_image(layers, APP), "team/app:1")
    registry.push(make_image(layers, {"Env": ["PATH=/bin"]}), "team/plain:1")
    registry.push(make_image(layers, {"User": "toor"}), "team/toor:1")
    registry.push(make_image(layers, {"Volumes": {"/opt/sandmesh/python/lib": {}}}), "team/cover:1")
    registry.push(make_image(layers, architecture="riscv64"), "team/foreign:1")
    registry.push(make_image([make_tar(entry("unseen", tarfile.DIRTYPE))]), "team/unseen:1")
    # A kubelet takes no image of no bytes.
    registry.push(make_image([make_tar(file_entry("byte", b"x"))]), "team/empty:1")
    registry.settings(registry.folder)
    docker = ["/usr/bin/docker", "--config", str(registry.folder), "--host", cluster.engine]
    for command in (["tag", "sandmesh/base:latest", f"{registry.host}/{BASE}"], ["push", f"{registry.host}/{BASE}"]):
        subprocess.run([*docker, *command], check=True, capture_output=True)
    login = base64.b64encode((registry.folder / "config.json").read_bytes()).decode()
    kind = "kubernetes.io/dockerconfigjson"
    body = {"metadata": {"name": SECRET}, "type": kind, "data": {".dockerconfigjson": login}}
    cluster.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", body)


@pytest.fixture
def settings(cluster: Cluster, registry: Registry, paths: MeshPaths) -> KubernetesSettings:
    """Give settings of a mesh of its own, which may use the registry."""
    store = registry.settings(paths.state_root / "images")
    return settings_of(cluster, paths).model_copy(
        update={"pull_secrets": (SECRET,), "image_store": store, "own_workspaces": True}
    )


@asynccontextmanager
async def _sandbox(driver: Driver, paths: MeshPaths, image: str, **fields: Any) -> AsyncGenerator[pb.RuntimeSandbox]:
    spec = sandbox_pb2.SandboxSpec(template="base", image=image, **fields)
    request = pb.CreateSandboxRequest(sandbox_id="sb_image", mesh_id=paths.mesh_id, spec=spec)
    try:
        yield (await driver.create_sandbox(request)).sandbox
    finally:
        await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id="sb_image"))


async def _cell(sandbox: pb.RuntimeSandbox, code: str) -> str:
    return (await call(sandbox, "run_ipython_cell", {"code": code})).stdout


async def test_an_image_without_an_agent_is_the_root_of_a_pod(
    settings: KubernetesSettings, cluster: Cluster, registry: Registry, paths: MeshPaths
) -> None:
    async with direct(settings)() as driver:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities
        assert able.images
        assert able.root
        async with _sandbox(driver, paths, f"{registry.host}/team/app:1") as sandbox:
            said = (await run(sandbox, "id; pwd; echo $FLAVOUR $HOME $PATH; echo m > /workspace/m")).stdout
            assert said == "uid=1234(app) gid=1235(app) groups=1300(extra)\n/srv/app\nsalt /home/app /bin\n"
            assert (await run(sandbox, "stat -c '%u %g %a' /workspace/m /workspace")).stdout == (
                "1234 1235 644\n1234 1235 700\n"
            )
            assert "denied" in (await run(sandbox, "ls /run/sandmesh/agent")).stderr
            assert "denied" in (await run(sandbox, "echo x > /etc/x")).stderr
            assert "Read-only" in (await run(sandbox, "mkdir /opt/env/x")).stderr
            who = "import os, sys; print(os.getuid(), os.getgid(), sys.prefix)"
            assert await _cell(sandbox, who) == "1234 1235 /opt/env\n"
            for arguments, first in (([], "cmd"), (["own"], "own")):
                said = (await call(sandbox, "start_process", {"command": arguments, "entrypoint": True})).stdout
                assert said == f"{first} salt\n/srv/app\n1234\n"
            assert sandbox.enforced["root"].startswith("user app inside")
            log = await driver.get_logs(pb.GetLogsRequest(sandbox_id="sb_image"))
            assert b"preload" not in log.data, "the agent loads what its image says"
        async with _sandbox(driver, paths, f"{registry.host}/team/empty:1") as sandbox:
            assert await _cell(sandbox, "import os; print(os.getuid(), os.path.exists('/bin'))") == "0 False\n"
    assert not leftovers(cluster, paths.mesh_id)


async def test_root_inside_a_pod_has_neither_its_network_nor_its_agents_secrets(
    settings: KubernetesSettings, registry: Registry, paths: MeshPaths
) -> None:
    async with direct(settings)() as driver, _sandbox(driver, paths, f"{registry.host}/team/plain:1") as sandbox:
        seen = (await run(sandbox, f"id -u; {SEEN}; echo x > /etc/x && cat /etc/x")).stdout.splitlines()
        assert seen == ["0", "CapEff:\t00000000200405fb", "CapBnd:\t00000000200405fb", "NoNewPrivs:\t1", "x"]
        # Unreachable, as every uid that root can take.
        assert await _cell(sandbox, OUT) == "{('OSError', 101)}\n"
        inside = "ls /run/sandmesh/agent /run/sandmesh-born; cat /proc/1/mem /proc/1/environ; kill -9 1; echo $?"
        tried = await run(sandbox, inside)
        assert tried.stdout.splitlines()[-1] == "0", "signals to PID 1 are ignored"
        assert "/run/sandmesh-born: No such file" in tried.stderr
        assert "can't open '/proc/1/mem': Permission denied" in tried.stderr
        files_of_agent = (await run(sandbox, "cat /run/sandmesh/agent/*; env; cat /proc/mounts")).stdout
        assert sandbox.agent_token not in files_of_agent
        assert "PRIVATE KEY" not in files_of_agent
        assert (await run(sandbox, "echo here")).stdout == "here\n"


async def test_what_no_pod_can_do_with_an_image_is_refused_by_name(
    settings: KubernetesSettings, cluster: Cluster, registry: Registry, paths: MeshPaths
) -> None:
    async def refused(driver: Driver, kind: type[errors.SandmeshError], said: str, name: str, **fields: Any) -> None:
        image = f"{registry.host}/{name}" if name.startswith("team") else name
        with pytest.raises(kind, match=said):
            async with _sandbox(driver, paths, image, **fields):
                pass

    async with direct(settings)() as driver:
        missing, invalid = errors.CapabilityMissing, errors.InvalidArgument
        await refused(driver, missing, "disk", "team/app:1", limits=sandbox_pb2.Limits(disk_bytes=1 << 20))
        await refused(driver, missing, "root inside only in an image", "", root=True)
        await refused(driver, missing, "sandmesh image push", "oci:/srv/image")
        await refused(driver, invalid, "template's name, too", "base")
        await refused(driver, invalid, "where the agent is", "team/cover:1")
        await refused(driver, invalid, "there is no image", "team/nothing:1")
        await refused(driver, invalid, "is for linux/riscv64", "team/foreign:1")
        await refused(driver, errors.RuntimeUnavailable, "does not respond", "127.0.0.1:9/team/nothing:1")
        await refused(driver, errors.SandboxStartFailed, "no user 'toor'", "team/toor:1")
    never = settings.model_copy(update={"root_sandboxes": "never"})
    async with direct(never)() as driver:
        await refused(driver, errors.PermissionDenied, "SANDMESH_ROOT_SANDBOXES", "team/plain:1")
    pulled = settings.model_copy(update={"image_sandboxes": "pulled"})
    async with direct(pulled)() as driver:
        assert not (await driver.get_info(pb.GetInfoRequest())).capabilities.images
        await refused(driver, errors.PermissionDenied, "SANDMESH_IMAGE_SANDBOXES=any", "team/plain:1")
    shared = settings.model_copy(update={"own_workspaces": False})
    async with direct(shared)() as driver:
        await refused(driver, errors.PermissionDenied, "SANDMESH_IMAGE_REGISTRIES", "team/plain:1")
    without = settings.model_copy(update={"pull_secrets": (), "start_timeout": 300})
    async with direct(without)() as driver:
        await refused(driver, errors.TemplateBuildFailed, "ErrImagePull.*pull secrets", "team/unseen:1")
    assert not leftovers(cluster, paths.mesh_id)


@pytest.mark.parametrize("requirement", OF_IMAGES, ids=lambda one: one.__name__)
async def test_conformance(
    requirement: Requirement, settings: KubernetesSettings, cluster: Cluster, registry: Registry
) -> None:
    made = subject_of(cluster, settings, direct(settings))
    image = {"image": f"{registry.host}/{BASE}", "root": False}
    await requirement(dataclasses.replace(made, image=image))

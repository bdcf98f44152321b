"""What the docker driver asks an engine for, and what it refuses before it asks."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ByteSize, ValidationError

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, RuntimeUnavailable, WorkspaceDirRefused
from sandmeshd.drivers.engine.app import open_driver
from sandmeshd.drivers.engine.connection import tls_context
from sandmeshd.drivers.engine.container_config import AGENT_BYTES, container_config, scratch_directories
from sandmeshd.drivers.engine.driver import killed_within, state_of
from sandmeshd.drivers.engine.reach.links import AgentAccess
from sandmeshd.drivers.engine.requirements import check, default_memory
from sandmeshd.drivers.engine.runtimes import DOCKER
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.mounts.host_directories import opened
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths
from tests.ordinary import ORDINARY_UID

WHOLE = {"MemoryLimit": True, "CpuCfsQuota": True, "CpuCfsPeriod": True, "PidsLimit": True, "CgroupVersion": "2"}
MEBIBYTE = 1 << 20


@pytest.fixture
def settings(tmp_path: Path) -> DockerSettings:
    """Give settings of a mesh whose engine is not there."""
    paths = MeshPaths("unit", tmp_path / "state", tmp_path / "run")
    return DockerSettings(paths=paths, url=f"unix://{tmp_path}/none.sock")


def _config(settings: DockerSettings, **limits: int) -> dict[str, Any]:
    spec = sandbox_pb2.SandboxSpec(template="base", limits=sandbox_pb2.Limits(**limits))
    folder = MeshFolders(settings.paths).folder("sb_1")
    return container_config(settings, folder, spec, "image", trusts=False)


def _volumes(host: dict[str, Any]) -> list[dict[str, Any]]:
    return [mount for mount in host["Mounts"] if mount["Type"] == "volume"]


def test_a_templates_directories_are_user_codes_own_and_as_large_as_its_tmp(settings: DockerSettings) -> None:
    container = _config(settings, memory_bytes=256 * MEBIBYTE)
    added = scratch_directories(container, ["/app", "/logs"])
    assert set(added) == {"/app", "/logs"}
    assert added["/app"] == f"rw,exec,nosuid,nodev,size={64 * MEBIBYTE},uid=1000,gid=1000,mode=0755"


def test_the_home_has_the_size_of_the_disk_where_that_is_larger(settings: DockerSettings) -> None:
    for disk, home in {0: 1024, 64: 1024, 4096: 4096}.items():
        memory = _config(settings, disk_bytes=disk * MEBIBYTE)["HostConfig"]["Tmpfs"]
        assert f",size={home * MEBIBYTE}," in memory["/home/sandbox"], disk


def test_a_container_has_no_network_no_writable_root_and_four_capabilities_to_begin_with(
    settings: DockerSettings,
) -> None:
    host = _config(settings)["HostConfig"]
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], ["KILL", "SETGID", "SETUID", "SETPCAP"])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert not {"Privileged", "PortBindings", "Devices", "Binds"} & host.keys()


def test_nothing_of_the_host_is_mounted_but_the_directory_of_the_agents_socket_and_a_file_in_it(
    settings: DockerSettings,
) -> None:
    mounts = _config(settings)["HostConfig"]["Mounts"]
    sources = [mount["Source"] for mount in mounts if mount["Type"] == "bind"]
    sockets = MeshFolders(settings.paths).folder("sb_1").sockets
    assert sources == [str(sockets), str(sockets / "hosts")]


def test_what_the_settings_grant_of_the_host_is_shown_read_only_without_what_is_mounted_below(
    settings: DockerSettings, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shown = settings.model_copy(update={"readonly_mounts": {str(data): "/mnt/data"}})
    mount = _config(shown)["HostConfig"]["Mounts"][-1]
    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == (str(data.resolve()), "/mnt/data", True)
    assert mount["BindOptions"]["NonRecursive"] is True


async def test_what_holds_the_engines_socket_is_neither_shown_nor_a_workspace(
    settings: DockerSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "engine"
    folder.mkdir()
    overrides = {
        "url": f"unix://{folder}/s",
        "workspace_roots": (str(folder),),
        "readonly_mounts": {str(folder): "/mnt/e"},
    }
    wrong = settings.model_copy(update=overrides)
    with pytest.raises(InvalidArgument, match="holds the engine's socket"):
        async with open_driver(wrong):
            pass
    spec = sandbox_pb2.SandboxSpec(template="base", workspace_dir=str(folder))
    with pytest.raises(WorkspaceDirRefused, match="engine/s: name another"), opened(spec, wrong.workspace_rules):
        pass


async def test_a_mount_of_what_is_not_there_is_refused_before_the_engine_is_asked(settings: DockerSettings) -> None:
    wrong = settings.model_copy(update={"readonly_mounts": {"/nowhere/at/all": "/mnt/data"}})
    with pytest.raises(InvalidArgument, match="is not there"):
        async with open_driver(wrong):
            pass


def test_limits_are_the_engines_and_swap_adds_nothing(settings: DockerSettings) -> None:
    host = _config(settings, memory_bytes=64 * MEBIBYTE, cpu_millis=500, pids=40)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 64 * MEBIBYTE + AGENT_BYTES
    assert (host["NanoCpus"], host["PidsLimit"]) == (500_000_000, 46)


def test_memory_that_nobody_limits_has_the_bound_of_the_settings_beside_a_workspace_in_memory(
    settings: DockerSettings,
) -> None:
    bound = int(settings.default_memory) + AGENT_BYTES
    assert _config(settings)["HostConfig"]["Memory"] == bound
    disk = 16 * MEBIBYTE
    assert _config(settings, disk_bytes=disk)["HostConfig"]["MemorySwap"] == bound + disk
    unbounded = settings.model_copy(update={"default_memory": ByteSize(0)})
    assert _config(unbounded)["HostConfig"]["Memory"] == 0


def test_the_bound_is_at_most_half_of_the_machine_and_none_where_the_engine_limits_no_memory(
    settings: DockerSettings,
) -> None:
    assert default_memory(settings, {**WHOLE, "MemTotal": 64 << 30}) == settings.default_memory
    assert default_memory(settings, {**WHOLE, "MemTotal": 2 << 30}) == 1 << 30
    assert default_memory(settings, {"MemTotal": 64 << 30}) == 0


@pytest.mark.parametrize("value", ["1KiB", "127MiB"])
def test_a_bound_that_holds_no_sandbox_is_refused(settings: DockerSettings, value: str) -> None:
    with pytest.raises(ValidationError, match=r"set at least 128.0MiB, or 0 for none"):
        DockerSettings.model_validate({"paths": settings.paths, "default_memory": value})


def test_a_workspace_whose_size_is_limited_is_in_memory_and_no_volume(settings: DockerSettings) -> None:
    limited = _config(settings, disk_bytes=16 * MEBIBYTE)["HostConfig"]
    assert f"size={16 * MEBIBYTE}" in limited["Tmpfs"]["/workspace"]
    assert not _volumes(limited)


def test_a_volume_has_no_name_and_the_labels_of_its_mesh_node_and_sandbox(settings: DockerSettings) -> None:
    (volume,) = _volumes(_config(settings)["HostConfig"])
    labels = {"dev.sandmesh.mesh": "unit", "dev.sandmesh.node": "local", "dev.sandmesh.sandbox": "sb_1"}
    assert volume == {"Type": "volume", "Target": "/workspace", "VolumeOptions": {"Labels": labels}}


@pytest.mark.parametrize("name", ["memory_bytes", "cpu_millis", "pids"])
def test_what_the_engine_cannot_limit_is_refused_by_name(name: str) -> None:
    spec = sandbox_pb2.SandboxSpec(template="base", limits=sandbox_pb2.Limits(**{name: 1 << 30}))
    request = pb.CreateSandboxRequest(sandbox_id="sb_1", mesh_id="unit", spec=spec)
    with pytest.raises(CapabilityMissing) as caught:
        check(DOCKER, request, DOCKER.enforceable({}), AgentAccess())
    assert caught.value.facts["needs"] == name.partition("_")[0]


def test_memory_that_holds_no_python_is_refused() -> None:
    spec = sandbox_pb2.SandboxSpec(template="base", limits=sandbox_pb2.Limits(memory_bytes=MEBIBYTE))
    request = pb.CreateSandboxRequest(sandbox_id="sb_1", mesh_id="unit", spec=spec)
    with pytest.raises(InvalidArgument, match="at least"):
        check(DOCKER, request, DOCKER.enforceable(WHOLE), AgentAccess())


def test_how_a_container_ended_is_told() -> None:
    killed = {"Status": "exited", "ExitCode": 137, "OOMKilled": True}
    assert state_of(killed) == (pb.RUNTIME_STATE_ENDED, "signal 9, out of memory")
    assert state_of({"Status": "exited", "ExitCode": 1}) == (pb.RUNTIME_STATE_ENDED, "exit code 1")
    assert state_of({"Status": "paused"}) == (pb.RUNTIME_STATE_PAUSED, "")


def test_only_what_was_killed_just_now_for_no_known_reason_may_turn_out_to_have_run_out_of_memory() -> None:
    lately = datetime.now(UTC).isoformat()
    killed = {"Status": "exited", "ExitCode": 137, "OOMKilled": False, "FinishedAt": lately}
    assert killed_within(killed, 60)
    assert not killed_within({**killed, "OOMKilled": True}, 60)
    assert not killed_within({**killed, "ExitCode": 1}, 60)
    assert not killed_within({**killed, "FinishedAt": "2020-01-01T00:00:00.123456789Z"}, 60)
    assert not killed_within({"Status": "running", "ExitCode": 0, "FinishedAt": "0001-01-01T00:00:00Z"}, 60)


async def test_an_engine_that_is_not_there_is_named_with_the_fix(settings: DockerSettings) -> None:
    with pytest.raises(RuntimeUnavailable, match="does not answer") as caught:
        async with open_driver(settings):
            pass
    assert "SANDMESH_DOCKER_URL" in caught.value.facts["fix"]


ASK = """
import asyncio, sys
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.engine.engine import open_engine
async def ask():
    async with open_engine(sys.argv[1]) as engine:
        try:
            await engine.info()
        except RuntimeUnavailable as error:
            print(error.facts["fix"], error)
asyncio.run(ask())
"""


@pytest.mark.needs("root")
def test_a_socket_that_is_closed_to_this_user_is_named_with_the_fix() -> None:
    with tempfile.TemporaryDirectory(prefix="sm-") as folder, socket.socket(socket.AF_UNIX) as engine:
        Path(folder).chmod(0o755)
        engine.bind(f"{folder}/s")
        engine.listen()
        Path(folder, "s").chmod(0o600)
        command = [sys.executable, "-B", "-c", ASK, f"unix://{folder}/s"]
        done = subprocess.run(
            command, cwd="/", user=ORDINARY_UID, extra_groups=[], capture_output=True, text=True, check=True
        )
    assert "is closed to this user" in done.stdout
    assert done.stdout.startswith("add this user to the group docker")


async def test_an_engine_that_is_no_socket_and_no_address_is_refused(settings: DockerSettings) -> None:
    wrong = settings.model_copy(update={"url": "ssh://example.org"})
    with pytest.raises(RuntimeUnavailable, match=r"example\.org") as caught:
        async with open_driver(wrong):
            pass
    assert "unix:///path" in caught.value.facts["fix"]


def test_certificates_that_are_not_there_are_named_with_the_fix(settings: DockerSettings, tmp_path: Path) -> None:
    with_tls = settings.model_copy(update={"url": "tcp://127.0.0.1:2376", "certificates": tmp_path})
    with pytest.raises(InvalidArgument, match=re.escape(str(tmp_path))) as caught:
        tls_context(with_tls)
    assert "DOCKER_CERT_PATH" in caught.value.facts["fix"]
    assert tls_context(with_tls.model_copy(update={"url": "unix:///run/docker.sock"})) is None

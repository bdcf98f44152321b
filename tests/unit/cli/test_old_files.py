"""Files of settings written for AgentScope Runtime, taken word by word."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.config_file import find_config
from sandmeshd.cli.config.environment import log_remarks, read_notes, read_remarks, read_settings
from sandmeshd.cli.config.legacy_names import UNLIMITED
from sandmeshd.cli.user_app import app
from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.mesh.driver import settings_for

from .test_settings import DOCUMENTED, no_variables, write

__all__ = ["no_variables"]

PRINTED = DOCUMENTED.replace("SANDMESH_", "")

CLOUDS = """
AGENT_RUN_ACCOUNT_ID=1234567890
AGENT_RUN_VSWITCH_IDS=["a"]
FC_CPU=2.0
AGENTBAY_API_KEY=akm-of-the-program
K8S_NAMESPACE=agents
KUBECONFIG_PATH=/etc/kube.conf
OSS_ENDPOINT=http://oss-cn-hangzhou.aliyuncs.com
OSS_BUCKET_NAME=your-bucket-name
"""


def test_the_file_as_printed_means_what_it_means_with_our_prefix(tmp_path: Path) -> None:
    file = write(tmp_path, PRINTED)
    settings = read_settings(file)
    prefixed = tmp_path / "prefixed.env"
    prefixed.write_text(DOCUMENTED)
    assert settings == read_settings(prefixed)
    assert read_notes(settings, file) == read_notes(settings, prefixed)


def test_names_without_a_prefix_are_said_once_in_the_log(tmp_path: Path) -> None:
    file = write(tmp_path, "PORT=9000\nPOOL_SIZE=2\nSANDMESH_WORKERS=2\n")
    assert read_settings(file).gateway.listen == ("127.0.0.1:9000",)
    with capture_logs() as logged:
        log_remarks(file)
    (line,) = [line for line in logged if "without SANDMESH_" in line["event"]]
    assert (line["log_level"], line["file"], line["names"]) == ("info", str(file), "POOL_SIZE, PORT")


def test_the_environment_needs_the_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("MAX_SANDBOX_INSTANCES", "7")
    settings = read_settings()
    assert (settings.gateway.listen, settings.allocator.capacity) == ((), 100)


def test_settings_of_a_driver_or_store_that_is_not_chosen_are_ignored_and_shown_as_such(tmp_path: Path) -> None:
    file = write(tmp_path, CLOUDS + "FILE_SYSTEM=local\nREDIS_ENABLED=False\nREDIS_SERVER=localhost\n")
    settings = read_settings(file)
    assert (settings.driver, settings.storage, settings.redis_url) == ("bubblewrap", None, None)
    ignored = {
        remark.facts["setting"]: remark.facts["detail"] for remark in read_remarks(file) if "ignored" in remark.event
    }
    names = [line.partition("=")[0] for line in CLOUDS.split()]
    assert set(ignored) == {f"SANDMESH_{name}" for name in (*names, "REDIS_SERVER")}
    assert "SANDMESH_FILE_SYSTEM is local" in ignored["SANDMESH_OSS_ENDPOINT"]
    shown = CliRunner().invoke(app, ["config", "show", "--config", str(file)])
    assert shown.exit_code == 0, shown.output
    assert all(f"a setting is ignored: {name}, {why}" in shown.stderr for name, why in ignored.items())


@pytest.mark.parametrize("chosen", ["CONTAINER_DEPLOYMENT=k8s", "SANDMESH_DRIVER=kubernetes"])
def test_what_is_about_kubernetes_means_what_it_meant_where_that_is_chosen(tmp_path: Path, chosen: str) -> None:
    file = write(tmp_path, f"{chosen}\nK8S_NAMESPACE=default\nKUBECONFIG_PATH=/etc/kube.conf\n")
    settings = read_settings(file)
    assert settings.driver == "kubernetes"
    own = settings_for(settings, "kubernetes", KubernetesSettings)
    assert (own.kubernetes_namespace, own.kubeconfig) == ("default", Path("/etc/kube.conf"))
    assert not read_notes(settings, file)
    assert not [remark for remark in read_remarks(file) if "ignored" in remark.event]


def test_what_is_about_function_compute_means_what_it_meant_where_that_is_chosen(tmp_path: Path) -> None:
    keys = "FC_ACCOUNT_ID=1\nFC_ACCESS_KEY_ID=a\nFC_ACCESS_KEY_SECRET=b\nFC_REGION_ID=cn-beijing\n"
    rest = "FC_CPU=4.0\nFC_MEMORY=4096\nFC_PREFIX=agents\nFC_LOG_PROJECT=p\nFC_LOG_STORE=s\nFC_VPC_ID=vpc-1\n"
    file = write(tmp_path, f"CONTAINER_DEPLOYMENT=fc\n{keys}{rest}")
    settings = read_settings(file)
    assert settings.driver == "fc"
    own = settings_for(settings, "fc", FcSettings)
    assert (own.account_id, own.access_key_id, own.access_key_secret.get_secret_value()) == ("1", "a", "b")
    assert (own.region_id, own.cpu, own.memory, own.prefix) == ("cn-beijing", 4.0, 4096, "agents")
    assert (own.log_project, own.log_store) == ("p", "s")
    [ignored] = [remark.facts for remark in read_remarks(file) if "ignored" in remark.event]
    assert ignored["setting"] == "SANDMESH_FC_VPC_ID"
    assert "only through the mesh" in ignored["detail"]


def test_what_is_about_agentrun_means_what_it_meant_where_that_is_chosen(tmp_path: Path) -> None:
    keys = "AGENT_RUN_ACCOUNT_ID=1\nAGENT_RUN_ACCESS_KEY_ID=a\nAGENT_RUN_ACCESS_KEY_SECRET=b\n"
    rest = "AGENT_RUN_REGION_ID=cn-beijing\n"
    rest += "AGENT_RUN_CPU=4.0\nAGENT_RUN_MEMORY=4096\nAGENT_RUN_PREFIX=agentscope-sandbox\nAGENT_RUN_LOG_PROJECT=p\n"
    network = 'AGENT_RUN_LOG_STORE=s\nAGENT_RUN_VPC_ID=\nAGENT_RUN_VSWITCH_IDS=["a"]\nFC_CPU=1.0\n'
    file = write(tmp_path, f"CONTAINER_DEPLOYMENT=agentrun\n{keys}{rest}{network}")
    settings = read_settings(file)
    assert settings.driver == "agentrun"
    own = settings_for(settings, "agentrun", AgentRunSettings)
    assert (own.account_id, own.access_key_id, own.access_key_secret.get_secret_value()) == ("1", "a", "b")
    assert (own.region_id, own.cpu, own.memory, own.prefix) == ("cn-beijing", 4.0, 4096, "agentscope-sandbox")
    assert (own.log_project, own.log_store) == ("p", "s")
    ignored = {
        remark.facts["setting"]: remark.facts["detail"] for remark in read_remarks(file) if "ignored" in remark.event
    }
    assert ignored.keys() == {"SANDMESH_AGENT_RUN_VSWITCH_IDS", "SANDMESH_FC_CPU"}
    assert "the agentrun driver are in no network" in ignored["SANDMESH_AGENT_RUN_VSWITCH_IDS"]


def test_our_own_names_come_before_the_old_ones_about_kubernetes(tmp_path: Path) -> None:
    text = "CONTAINER_DEPLOYMENT=k8s\nK8S_NAMESPACE=old\nKUBECONFIG_PATH=\nSANDMESH_KUBERNETES_NAMESPACE=new\n"
    own = settings_for(read_settings(write(tmp_path, text)), "kubernetes", KubernetesSettings)
    assert (own.kubernetes_namespace, own.kubeconfig) == ("new", None)


def test_no_limit_of_sandboxes_and_no_scan_mean_what_they_meant(tmp_path: Path) -> None:
    allocator = read_settings(write(tmp_path, "MAX_SANDBOX_INSTANCES=0\nHEARTBEAT_TIMEOUT=300\n")).allocator
    assert (allocator.capacity, allocator.default_idle_seconds) == (UNLIMITED, 300.0)
    for name in ("HEARTBEAT_SCAN_INTERVAL", "WATCHER_SCAN_INTERVAL"):
        allocator = read_settings(write(tmp_path, f"HEARTBEAT_TIMEOUT=300\n{name}=0\n")).allocator
        assert (allocator.default_idle_seconds, allocator.sweep_seconds) == (0.0, 1.0)


def test_names_that_only_the_package_has_are_known_too(tmp_path: Path) -> None:
    file = write(tmp_path, "RELEASE_KET_TTL=60\nALLOW_MOUNT_DIR=False\nREDIS_ENABLED=False\n")
    assert read_settings(file).allocator.event_seconds == 60
    file = write(tmp_path, "REDIS_PORT_KEY=_runtime_sandbox_container_occupied_ports\n")
    assert set(read_notes(read_settings(file), file)) == {"SANDMESH_REDIS_PORT_KEY"}


def test_a_relative_folder_of_the_storage_is_below_the_state_directory(tmp_path: Path) -> None:
    file = write(tmp_path, "FILE_SYSTEM=local\nSTORAGE_FOLDER=saved\n")
    settings = read_settings(file, mesh_id="mine", state_directory=tmp_path / "state")
    assert settings.storage is not None
    assert settings.storage.folder == tmp_path / "state" / "saved" / "mine"


def test_the_local_file_system_alone_is_its_default(tmp_path: Path) -> None:
    assert read_settings(write(tmp_path, "FILE_SYSTEM=local\n")).storage is None


def test_a_dotenv_in_the_working_directory_is_read_where_no_config_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY=hush\nBARE\n{CLOUDS}CONTAINER_PREFIX_KEY=agents_\nPORT=9000\n")
    monkeypatch.chdir(tmp_path)
    found = find_config(None, {}, tmp_path)
    assert found == tmp_path / ".env"
    settings = read_settings(found)
    assert (settings.mesh_id, settings.gateway.listen) == ("agents", ("127.0.0.1:9000",))
    shown = CliRunner().invoke(app, ["config", "show"])
    assert f"settings are read from a .env file: {found}" in shown.stderr
    assert "hush" not in shown.output + shown.stderr
    other = write(tmp_path, "MESH_ID=another\n".replace("MESH_ID", "SANDMESH_MESH_ID"))
    assert find_config(other, {}, tmp_path) == other
    assert find_config(None, {"SANDMESH_CONFIG": str(other)}, tmp_path) == other
    assert find_config(None, {}, None) is None


@pytest.mark.parametrize(
    "text", ["HOST=0.0.0.0\nPORT=3000\nDEBUG=true\n", "SANDMESH_ADDRESS=grpc://there:1\nPORT=3000\n", "\xff"]
)
def test_a_dotenv_of_another_program_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / ".env").write_bytes(text.encode("latin-1"))
    assert find_config(None, {}, tmp_path) is None


def test_in_a_dotenv_with_our_names_the_others_are_another_programs(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("SANDMESH_MESH_ID=mine\nPORT=3000\nHOST=0.0.0.0\n")
    settings = read_settings(find_config(None, {}, tmp_path))
    assert (settings.mesh_id, settings.gateway.listen) == ("mine", ())


def test_an_unknown_variable_of_the_environment_warns_with_the_nearest_name_and_one_of_a_file_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDMESH_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("SANDMESH_MAX_SANDBOXS", "7")
    monkeypatch.setenv("SANDMESH_IMAGE_REGISTRY", "registry.example")
    assert read_settings().allocator.capacity == 100
    with capture_logs() as logged:
        log_remarks()
    warned = {line["setting"]: line["fix"] for line in logged if line["log_level"] == "warning"}
    assert set(warned) == {"SANDMESH_SERVICE_HOST", "SANDMESH_MAX_SANDBOXS"}
    assert warned["SANDMESH_MAX_SANDBOXS"] == "did you mean SANDMESH_MAX_SANDBOXES?"
    with pytest.raises(InvalidArgument, match="did you mean SANDMESH_QUEUE_SECONDS"):
        read_settings(write(tmp_path, "SANDMESH_QUEUE_SECOND=7\n"))

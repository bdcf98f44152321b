"""Settings of a mesh: their sources, which of these takes precedence, what is refused and how."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.configuration_page import row
from typer.testing import CliRunner

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.config.environment import COMMAND_LINE, read_notes, read_settings, read_with_sources
from sandmeshd.cli.config.legacy_names import MEANINGS, OLD_DEFAULTS, REFUSED, RULES
from sandmeshd.cli.user_app import app
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import driver_settings
from sandmeshd.mesh.settings import all_variables

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"
HINT = "python scripts/configuration_page.py > docs/configuration.md"

# The settings of the old documentation's example as they stand there, each name with our prefix.
DOCUMENTED = """
# Service settings
SANDMESH_HOST="0.0.0.0"
SANDMESH_PORT=8000
SANDMESH_WORKERS=4
SANDMESH_DEBUG=False
SANDMESH_BEARER_TOKEN=your-secret-token

# Sandbox Manager settings
SANDMESH_DEFAULT_SANDBOX_TYPE=base
SANDMESH_POOL_SIZE=10
SANDMESH_AUTO_CLEANUP=True
SANDMESH_CONTAINER_PREFIX_KEY=agent-runtime-container-
SANDMESH_CONTAINER_DEPLOYMENT=docker
SANDMESH_DEFAULT_MOUNT_DIR=sessions_mount_dir
SANDMESH_PORT_RANGE=[49152,59152]

# Redis settings
SANDMESH_REDIS_ENABLED=True
SANDMESH_REDIS_SERVER=localhost
SANDMESH_REDIS_PORT=6379
SANDMESH_REDIS_DB=0
SANDMESH_REDIS_USER=your-redis-user
SANDMESH_REDIS_PASSWORD=your-redis-password
SANDMESH_REDIS_PORT_KEY=_agent_runtime_container_occupied_ports
SANDMESH_REDIS_CONTAINER_POOL_KEY=_agent_runtime_container_container_pool

# OSS settings
SANDMESH_FILE_SYSTEM=oss
SANDMESH_OSS_ENDPOINT=http://oss-cn-hangzhou.aliyuncs.com
SANDMESH_OSS_ACCESS_KEY_ID=your-access-key-id
SANDMESH_OSS_ACCESS_KEY_SECRET=your-access-key-secret
SANDMESH_OSS_BUCKET_NAME=your-bucket-name

# K8S settings
SANDMESH_K8S_NAMESPACE=default
SANDMESH_KUBECONFIG_PATH=
"""

# Others of its names, with other values.
OLD = """
# Service settings
SANDMESH_HOST="0.0.0.0"
SANDMESH_PORT=8000
SANDMESH_WORKERS=4
SANDMESH_DEBUG=True
SANDMESH_BEARER_TOKEN=your-secret-token
SANDMESH_DEFAULT_SANDBOX_TYPE=base,filesystem
SANDMESH_POOL_SIZE=10
SANDMESH_AUTO_CLEANUP=False
SANDMESH_CONTAINER_PREFIX_KEY=agent-runtime-container-
SANDMESH_CONTAINER_DEPLOYMENT=bubblewrap
SANDMESH_PORT_RANGE=[49152,59152]
SANDMESH_REDIS_ENABLED=True
SANDMESH_REDIS_SERVER=localhost
SANDMESH_REDIS_PORT=6379
SANDMESH_REDIS_DB=0
SANDMESH_REDIS_USER=your-redis-user
SANDMESH_REDIS_PASSWORD=p@ss
SANDMESH_FILE_SYSTEM=oss
SANDMESH_OSS_ENDPOINT=http://oss-cn-hangzhou.aliyuncs.com
SANDMESH_OSS_ACCESS_KEY_ID=your-access-key-id
SANDMESH_OSS_ACCESS_KEY_SECRET=your-access-key-secret
SANDMESH_OSS_BUCKET_NAME=your-bucket-name
SANDMESH_HEARTBEAT_TIMEOUT=300
SANDMESH_HEARTBEAT_SCAN_INTERVAL=2
SANDMESH_HEARTBEAT_LOCK_TTL=20
SANDMESH_MAX_SANDBOX_INSTANCES=50
SANDMESH_READONLY_MOUNTS={"/opt/shared": "/mnt/shared"}
SANDMESH_DEFAULT_MOUNT_DIR=/srv/mounts
SANDMESH_KUBECONFIG_PATH=
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the settings of the machine's environment."""
    import os  # noqa: PLC0415 - only here

    for name in [name for name in os.environ if name.startswith("SANDMESH_") and not name.startswith("SANDMESH_TEST")]:
        monkeypatch.delenv(name)


def write(folder: Path, text: str) -> Path:
    """Write a configuration."""
    file = folder / "mesh.env"
    file.write_text(text)
    return file


def test_the_old_documentations_file_means_the_same_here(tmp_path: Path) -> None:
    settings = read_settings(write(tmp_path, OLD))
    assert settings.paths.sandboxes == Path("/srv/mounts/agent-runtime-container/local")
    assert settings.gateway.listen == ("0.0.0.0:8000",)
    assert (settings.workers, settings.log_level, settings.driver) == (4, "DEBUG", "bubblewrap")
    assert settings.gateway.bearer_token is not None
    assert settings.gateway.bearer_token.get_secret_value() == "your-secret-token"
    allocator = settings.allocator
    assert allocator.pools == {"base": 10, "filesystem": 10}
    assert settings.keep_sandboxes
    assert settings.mesh_id == "agent-runtime-container"
    assert settings.gateway.http_ports == (49152, 59152)
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "redis://your-redis-user:p%40ss@localhost:6379/0"
    assert (allocator.default_idle_seconds, allocator.sweep_seconds, allocator.owner_grace_seconds) == (
        300.0,
        2.0,
        20.0,
    )
    assert allocator.capacity == 50
    assert driver_settings(settings).readonly_mounts == {"/opt/shared": "/mnt/shared"}
    storage = settings.storage
    assert storage is not None
    assert (storage.service, storage.bucket, storage.endpoint) == (
        "oss",
        "your-bucket-name",
        "http://oss-cn-hangzhou.aliyuncs.com",
    )
    assert storage.key_id is not None
    assert storage.key_secret is not None
    assert storage.key_id.get_secret_value() == "your-access-key-id"
    assert storage.key_secret.get_secret_value() == "your-access-key-secret"


def test_the_old_documentations_file_is_taken_as_it_stands_and_what_asks_for_nothing_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, DOCUMENTED)
    settings = read_settings(file)
    assert (settings.gateway.listen, settings.workers, settings.log_level) == (("0.0.0.0:8000",), 4, "INFO")
    assert (settings.driver, settings.allocator.pools, settings.keep_sandboxes) == ("docker", {"base": 10}, False)
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "redis://your-redis-user:your-redis-password@localhost:6379/0"
    assert settings.storage is not None
    assert (settings.storage.service, settings.storage.folder) == ("oss", Path("/agent-runtime-container"))
    noted = {f"SANDMESH_{name}" for name in ("DEFAULT_MOUNT_DIR", *OLD_DEFAULTS)}
    assert set(read_notes(settings, file)) == noted
    shown = CliRunner().invoke(app, ["config", "show", "--config", str(file)])
    assert shown.exit_code == 0
    assert all(f"{name} is set to its default and has no effect here: " in shown.stderr for name in noted)
    on_bubblewrap = write(tmp_path, DOCUMENTED.replace("=docker", "=bubblewrap"))
    settings = read_settings(on_bubblewrap)
    assert settings.paths.sandboxes.is_relative_to(settings.state_directory / "sessions_mount_dir")
    assert "SANDMESH_DEFAULT_MOUNT_DIR" not in read_notes(settings, on_bubblewrap)


def test_a_driver_that_is_served_alone_refuses_what_has_no_effect_on_it(tmp_path: Path) -> None:
    settings = MeshSettings(workspaces_directory=tmp_path)
    assert isinstance(driver_settings(settings), BubblewrapSettings)
    with pytest.raises(InvalidArgument, match="keeps workspaces in its containers"):
        driver_settings(settings.model_copy(update={"driver": "docker"}))


@pytest.mark.parametrize(
    ("text", "pools"),
    [("base", {"base": 1}), ("base, gui", {"base": 1, "gui": 1}), ('["a","b"]', {"a": 1, "b": 1})],
)
def test_types_are_one_several_or_a_list_with_a_pool_each(tmp_path: Path, text: str, pools: dict[str, int]) -> None:
    assert read_settings(write(tmp_path, f"SANDMESH_DEFAULT_SANDBOX_TYPE={text}\n")).allocator.pools == pools


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, 'SANDMESH_QUEUE_SECONDS=1\nSANDMESH_LEASE_SECONDS=2\nSANDMESH_MAX_SANDBOXES="3"\n')
    monkeypatch.setenv("SANDMESH_LEASE_SECONDS", "20")
    monkeypatch.setenv("SANDMESH_MAX_SANDBOXES", "30")
    monkeypatch.setenv("SANDMESH_ADDRESS", "unix:///a/clients/own")
    settings, sources = read_with_sources(file, {"keep_sandboxes": False}, max_sandboxes=300, workers=None)
    allocator = settings.allocator
    found = (allocator.queue_timeout_seconds, allocator.default_ttl_seconds, allocator.capacity)
    assert found == (1.0, 20.0, 300)
    assert not settings.keep_sandboxes
    named = {name: sources.get(name) for name in ("queue_seconds", "lease_seconds", "max_sandboxes", "workers")}
    expected = (str(file), "SANDMESH_LEASE_SECONDS", COMMAND_LINE, None)
    assert tuple(named.values()) == expected
    monkeypatch.setenv("SANDMESH_CONFIG", str(file))
    assert read_settings().allocator.queue_timeout_seconds == 1.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SANDMESH_LEASE_SECOND=1", "SANDMESH_LEASE_SECONDS?"),
        ("SANDMESH_HEARTBEAT_TIMOUT=1", "SANDMESH_HEARTBEAT_TIMEOUT?"),
        ("SANDMESH_QQQ=1", "config show"),
        ("QQQ=1", "write SANDMESH_QQQ=VALUE"),
        ("SANDMESH_WORKERS", "write SANDMESH_WORKERS=VALUE"),
        ("SANDMESH_WORKERS=many", "SANDMESH_WORKERS: Input should be a valid integer"),
        ("SANDMESH_WORKERS=4", "set SANDMESH_LISTEN"),
        ("SANDMESH_POOLS=base", "SANDMESH_POOLS must be JSON"),
        ("SANDMESH_PORT=eighty", "SANDMESH_PORT: PORT is 'eighty'"),
        ("SANDMESH_DEBUG=perhaps", "SANDMESH_DEBUG must be true or false"),
        ("SANDMESH_DEFAULT_SANDBOX_TYPE=[1]", "a JSON list of types"),
        ("SANDMESH_HEARTBEAT_TIMEOUT=soon", "SANDMESH_HEARTBEAT_TIMEOUT: Input should be a valid number"),
        ("SANDMESH_HEARTBEAT_TIMEOUT=1", "at least 5 seconds"),
        ("SANDMESH_HEARTBEAT_LOCK_TTL=2", "several times SANDMESH_SWEEP_SECONDS"),
        (
            "SANDMESH_CONTAINER_DEPLOYMENT=cloudy",
            "no driver 'cloudy' is installed: choose one of these: agentrun, ",
        ),
        ('SANDMESH_HOST=::1\nSANDMESH_LISTEN=["a:1"]', "mean the same setting"),
        ('SANDMESH_POOL_SIZE=1\nSANDMESH_POOLS={"base": 2}', "mean the same setting"),
        ("SANDMESH_REDIS_SERVER=x", "SANDMESH_REDIS_ENABLED is not true"),
        ("SANDMESH_SWEEP_SECONDS=1\nSANDMESH_HEARTBEAT_TIMEOUT=9\nHEARTBEAT_SCAN_INTERVAL=2", "mean the same setting"),
        ("SANDMESH_STORAGE_BUCKET=x", "give SANDMESH_FILE_SYSTEM"),
        ("ALLOW_MOUNT_DIR=True", "SANDMESH_WORKSPACE_ROOTS"),
        ("SANDMESH_CONTAINER_DEPLOYMENT=docker\nSANDMESH_DEFAULT_MOUNT_DIR=/srv", "keeps workspaces in its containers"),
        ("SANDMESH_DEFAULT_MOUNT_DIR=a\nSANDMESH_WORKSPACES_DIRECTORY=b", "mean the same setting"),
        *((f"SANDMESH_{name}=x", "has no effect here") for name in REFUSED),
    ],
)
def test_what_is_unknown_contradictory_or_without_effect_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(said)):
        read_settings(write(tmp_path, text + "\n"))


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_settings(tmp_path / "nowhere.env")


def test_config_show_says_where_each_value_came_from_and_hides_secrets(tmp_path: Path) -> None:
    file = write(tmp_path, "SANDMESH_BEARER_TOKEN=hush\nSANDMESH_PORT=9000\n")
    shown = CliRunner().invoke(app, ["config", "show", "--config", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "hush" not in shown.output
    lines = {line.split()[0]: line for line in shown.output.splitlines()}
    assert "127.0.0.1:9000" in lines["listen"]
    assert str(file) in lines["bearer_token"]
    assert lines["workers"].split()[-1] == "default"


def test_every_old_name_has_one_rule_about_a_setting_that_exists() -> None:
    assert sorted(name for names in RULES for name in names) == sorted(MEANINGS)
    assert set(MEANINGS.values()) <= {variable.setting for variable in all_variables().values()}
    assert not {f"SANDMESH_{name}" for name in MEANINGS} & set(all_variables())


def test_the_page_has_every_setting_and_every_old_name() -> None:
    page = PAGE.read_text()
    assert all(row(variable) in page for variable in all_variables().values()), HINT
    assert all(f"| `{name}` | `{setting.upper()}` |" in page for name, setting in MEANINGS.items()), HINT
    refused = {name: f"`{OLD_DEFAULTS[name]}`" if name in OLD_DEFAULTS else "empty" for name in REFUSED}
    assert all(f"| `{name}` | {taken} | {REFUSED[name]} |" in page for name, taken in refused.items()), HINT

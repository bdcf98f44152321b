"""What the mesh takes over from this machine's own clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.config.host_clients import read_apt, read_clients
from sandmeshd.mesh.driver import driver_settings


def test_a_users_configuration_goes_before_the_machines_and_the_environment_before_both(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "pip"
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(
        "[global]\nindex-url = https://a.corp/simple\nextra-index-url =\n  https://b.corp/s\n  file:///srv/w\n"
    )
    (tmp_path / ".npmrc").write_text("//npm.corp/:_authToken=x\nregistry = https://npm.corp/\n")
    found = _of_the_user({"HOME": str(tmp_path), "http_proxy": "http://p:1", "HTTPS_PROXY": "http://p:2"})
    assert found == {
        "egress_proxy": "http://p:2",
        "image_proxy": "http://p:2",
        "pip_index_url": "https://a.corp/simple",
        "pip_extra_index_urls": ("https://b.corp/s", "file:///srv/w"),
        "npm_registry": "https://npm.corp/",
    }
    environment = {"HOME": str(tmp_path), "PIP_INDEX_URL": "https://c.corp/simple", "PIP_EXTRA_INDEX_URL": ""}
    found = _of_the_user(
        {**environment, "npm_config_registry": "https://n.corp/", "NO_PROXY": "corp", "DOCKER_CONFIG": "/run/login"}
    )
    assert found == {
        "egress_no_proxy": "corp",
        "image_no_proxy": "corp",
        "image_credentials": "/run/login/config.json",
        "pip_index_url": "https://c.corp/simple",
        "npm_registry": "https://n.corp/",
    }


def _of_the_user(environment: dict[str, str]) -> dict[str, object]:
    return {name: value for name, value in read_clients(environment).items() if name != "apt_urls"}


def test_apt_names_its_archives_in_either_format(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "# deb http://no.corp/debian x main\ndeb [arch=amd64] http://a.corp/debian bookworm main\n"
        "deb-src http://src.corp/debian bookworm main\ndeb cdrom:[x]/ bookworm main\n"
    )
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "b.sources").write_text("Types: deb\nURIs: https://b.corp/u/ http://c.corp\n")
    (tmp_path / "sources.list.d" / "d.list").write_text("deb http://d.corp/x ./\n")
    (tmp_path / "sources.list.d" / "e.list.save").write_text("deb http://e.corp/x ./\n")
    found = list(read_apt(tmp_path))
    assert found == ["http://a.corp/debian", "https://b.corp/u", "http://c.corp", "http://d.corp/x"]


def test_a_configuration_that_cannot_be_read_states_nothing(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_bytes(b"\xff\xfe no section = 1")
    (tmp_path / ".npmrc").write_bytes(b"registry=\xff")
    environment = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    assert "npm_registry" not in read_clients(environment) or Path("/etc/npmrc").exists()
    assert "pip_index_url" not in read_clients({**environment, "PIP_CONFIG_FILE": "/dev/null"})


def test_the_meshs_own_settings_go_before_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.corp/simple")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")
    assert driver_settings(read_settings()).egress.indexes.pip == "https://pip.corp/simple"
    monkeypatch.setenv("SANDMESH_PIP_INDEX_URL", "https://mesh.corp/simple")
    monkeypatch.setenv("SANDMESH_EGRESS_PROXY", "")
    settings = driver_settings(read_settings(egress_private="never")).egress
    assert (settings.indexes.pip, settings.proxy, settings.private) == ("https://mesh.corp/simple", None, "never")

"""Bad values of every setting: each is refused in one line that names it, or is one that the setting can have."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from sandmesh.errors import AlreadyExists, InvalidArgument, MeshUnavailable, RuntimeUnavailable
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.cli.packages import explain_package, fits, needed_version
from sandmeshd.mesh.settings import all_variables
from sandmeshd.mesh.start_checks import (
    check_addresses_free,
    check_certificate_maker,
    check_not_running,
    check_templates,
)
from sandmeshd.runtime.locks import held
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import open_catalog

BAD = ["", "http://[", '["a\\nb"]', "\x1b[31m", "9" * 30]
"""One of each kind: nothing, a text, a list, control characters, a number beyond all bounds."""


def refusal(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return why a value is refused, the setting's name where it is not."""
    monkeypatch.setenv(name, value)
    try:
        read_settings()
    except InvalidArgument as error:
        return error.message
    return name


@pytest.mark.parametrize("name", sorted(all_variables()))
def test_a_bad_value_is_refused_in_one_line_that_names_its_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in BAD:
        message = refusal(name, value, monkeypatch)
        assert name in message, value
        assert message.isprintable(), value
        assert "Value error" not in message


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("SANDMESH_REDIS_URL", "http://x", "redis://HOST:PORT"),
        ("SANDMESH_LISTEN", '["localhost"]', "'localhost' is not HOST:PORT"),
        ("SANDMESH_LISTEN", '["127.0.0.1:99999"]', "not a number from 0 to 65535"),
        ("SANDMESH_LISTEN", '["::1:80"]', "HOST:PORT"),
        ("SANDMESH_HTTP_LISTEN", '["127.0.0.1:x"]', "not a number"),
        ("SANDMESH_E2B_LISTEN", '["x"]', "HOST:PORT"),
        ("SANDMESH_PORT_RANGE", "[5, 1]", "in order"),
        ("SANDMESH_HTTP_URL", "x", "https://HOST"),
        ("SANDMESH_EGRESS_PROXY", "x", "http://"),
        ("SANDMESH_STATE_DIRECTORY", "", "must not be empty"),
        ("SANDMESH_LEASE_SECONDS", "inf", "at most"),
        ("SANDMESH_TLS_CERT", "/x", "SANDMESH_TLS_KEY"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_its_form(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=name) as raised:
        read_settings()
    assert says in raised.value.message


@pytest.mark.parametrize("setting", ["state_directory", "runtime_directory", "workspaces_directory"])
def test_a_directory_that_cannot_be_made_is_named_with_its_setting(setting: str, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {
        "state_directory": tmp_path / "state",
        "runtime_directory": tmp_path / "run",
        setting: Path("/proc/x"),
    }
    with pytest.raises(RuntimeUnavailable, match=f"/proc/x cannot be made.*SANDMESH_{setting.upper()}"):
        read_settings(**chosen).paths.make()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pools": {"bse": 1}}, "no such template: bse .known: .*base"),
        ({"pools": {"base": 200}, "max_sandboxes": 10}, "keeps 200 sandboxes ready, but .* is 10"),
        ({"template_capacities": {"bse": 1}}, "SANDMESH_TEMPLATE_CAPACITIES: no such template"),
        ({"sandboxfusion_template": "bse"}, "SANDMESH_SANDBOXFUSION_TEMPLATE: no such template"),
    ],
)
def test_settings_that_name_templates_are_checked_before_a_build(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check_templates(read_settings(**settings), open_catalog((), ()))


@pytest.mark.parametrize("setting", ["listen", "http_listen"])
def test_an_address_in_use_is_refused_before_a_build(setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        options: dict[str, Any] = {setting: (f"127.0.0.1:{server.getsockname()[1]}",)}
        settings = read_settings(**options)
        with pytest.raises(MeshUnavailable, match=f"SANDMESH_{setting.upper()}.*Address already in use"):
            check_addresses_free(settings)
    check_addresses_free(settings)


def test_a_domain_without_what_makes_certificates_is_refused_before_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"e2b": True, "e2b_domain": "mesh.localhost"}
    check_certificate_maker(read_settings(**options))
    # As where the extra is not installed.
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(RuntimeUnavailable, match=r"extra tls, .*sandmesh\[tls\].*SANDMESH_TLS_CERT"):
        check_certificate_maker(read_settings(**options))
    check_certificate_maker(read_settings(e2b=True))


async def test_a_second_start_says_where_the_mesh_runs_and_that_its_options_have_no_effect(tmp_path: Path) -> None:
    settings = read_settings(state_directory=tmp_path / "state", runtime_directory=tmp_path / "run")
    check_not_running(settings)
    settings.paths.make()
    async with held(settings.paths.lock):
        with pytest.raises(AlreadyExists, match=r"runs already, as process \d+ at unix://.*were not applied"):
            check_not_running(settings)
    assert isinstance(settings.paths, MeshPaths)


def test_a_package_of_another_version_is_named_with_the_needed_one() -> None:
    assert fits("2.3.0", ">=2.2,<3")
    assert not fits("1.30.0", needed_version("mcp", "mcp"))
    assert explain_package("it", "mcp", "mcp", "pip install x") is None
    told = explain_package("it", "nothing-of-this-name", "mcp", "pip install x")
    assert told == "it needs the package nothing-of-this-name, which is not installed: pip install x"

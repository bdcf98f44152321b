"""Drivers of other packages: found by entry point, configured by settings of their own, refused by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.cli.config.environment import read_remarks, read_settings
from sandmeshd.cli.user_app import app
from sandmeshd.drivers.api.registry import find_driver
from sandmeshd.mesh.driver import driver_settings

MODULE = """
from pydantic import Field, SecretStr
from sandmeshd.drivers.api.settings import DriverSettings


class TinySettings(DriverSettings, env_prefix={prefix!r}):
    size: int = Field(default=1, ge=1)
    hosts: tuple[str, ...] = ()
    password: SecretStr{required}


def open_driver(settings, templates=None):
    raise RuntimeError("it is not opened here")


PAIR = TinySettings, open_driver
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what installs a distribution with a driver, and no setting of this machine."""
    for name in ("SANDMESH_DRIVER", "SANDMESH_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def install_one(
        package: str,
        driver: str = "tiny",
        prefix: str = "SANDMESH_TINY_",
        required: str = " | None = None",
        **names: str,
    ) -> None:
        folder, module = tmp_path / package, package.replace("-", "_")
        metadata = folder / f"{module}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        referred = names.get("attribute", "PAIR")
        (metadata / "entry_points.txt").write_text(f"[sandmesh.drivers]\n{driver} = {module}:{referred}\n")
        (folder / f"{module}.py").write_text(names.get("source", MODULE).format(prefix=prefix, required=required))
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install_one


def test_a_driver_of_another_package_has_settings_of_its_own(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("tiny-driver")
    monkeypatch.setenv("SANDMESH_DRIVER", "tiny")
    monkeypatch.setenv("SANDMESH_TINY_SIZE", "3")
    monkeypatch.setenv("SANDMESH_TINY_HOSTS", '["a", "b"]')
    monkeypatch.setenv("SANDMESH_TINY_PASSWORD", "hush")
    monkeypatch.setenv("SANDMESH_SNAPSHOT_LIMIT", "1MiB")
    found = driver_settings(read_settings()).model_dump()
    assert (found["size"], found["hosts"], found["snapshot_bytes"]) == (3, ("a", "b"), 1 << 20)
    shown = CliRunner().invoke(app, ["config", "show"])
    assert shown.exit_code == 0, shown.output
    assert "hush" not in shown.output
    lines = {line.split()[0]: line.split()[1:] for line in shown.output.splitlines()}
    assert lines["tiny_size"] == ["3", "SANDMESH_TINY_SIZE"]
    assert lines["docker_url"][-1] == "default"


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        ("SANDMESH_TINY_SIZE", "0", "settings of the driver tiny do not fit: SANDMESH_TINY_SIZE: "),
        ("SANDMESH_TINY_HOSTS", "a", "SANDMESH_TINY_HOSTS must be JSON"),
    ],
)
@pytest.mark.parametrize("chosen", ["tiny", "bubblewrap"])
def test_a_setting_that_the_drivers_class_refuses_stops_the_start_chosen_or_not(
    install: Install, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str, chosen: str
) -> None:
    install("tiny-driver")
    monkeypatch.setenv("SANDMESH_DRIVER", chosen)
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidArgument, match=re.escape(problem)):
        read_settings()


@pytest.mark.parametrize("chosen", ["tiny", "bubblewrap"])
def test_an_unknown_variable_near_a_drivers_setting_warns_with_that(
    install: Install, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    install("tiny-driver")
    monkeypatch.setenv("SANDMESH_DRIVER", chosen)
    monkeypatch.setenv("SANDMESH_TINY_SIZES", "1")
    read_settings()
    facts = {"setting": "SANDMESH_TINY_SIZES", "fix": "did you mean SANDMESH_TINY_SIZE?"}
    assert facts in [remark.facts for remark in read_remarks() if remark.is_warning]


def test_a_setting_that_a_driver_requires_is_required_where_it_is_chosen(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("tiny-driver", required="")
    assert read_settings().driver == "bubblewrap"
    monkeypatch.setenv("SANDMESH_DRIVER", "tiny")
    with pytest.raises(InvalidArgument, match="the driver tiny do not fit: SANDMESH_TINY_PASSWORD: Field required"):
        read_settings()


def test_of_two_drivers_of_one_name_the_start_names_both_distributions(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("tiny-driver")
    install("other-tiny")
    assert read_settings().driver == "bubblewrap"
    monkeypatch.setenv("SANDMESH_DRIVER", "tiny")
    with pytest.raises(RuntimeUnavailable, match=re.escape("of other-tiny 1.0 and tiny-driver 1.0")):
        read_settings()


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"attribute": "TinySettings"}, "of the driver tiny (of tiny-driver 1.0) is wrong"),
        ({"prefix": "TINY_"}, "the driver tiny has the setting TINY_SIZE"),
        ({"source": "import a_package_that_nobody_has"}, "needs a package that is not installed"),
        ({"source": f"{MODULE}PAIR = (*PAIR, None, 2)\n"}, "is for version 2 of the interface of drivers"),
    ],
)
def test_an_entry_point_that_gives_no_driver_is_named(install: Install, names: dict[str, str], problem: str) -> None:
    install("tiny-driver", **names)
    with pytest.raises(RuntimeUnavailable, match=re.escape(problem)):
        find_driver("tiny")


@pytest.mark.parametrize("path", ["sandmeshd.mesh.storage", "sandmeshd.drivers.api.forwarder", "sandmesh.shared.rpc"])
def test_a_private_path_of_before_is_an_ordinary_import_error(path: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"No module named '{path}'")):
        import_module(path)

"""Doors of other packages: found by entry point, configured by their own settings, refused with both places named."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.cli.config.environment import read_settings
from sandmeshd.facades.registry import find_door, find_doors
from sandmeshd.mesh.doors import PathOwners

MODULE = """
from pydantic import Field
from sandmeshd.contracts.door import DoorPlugin, DoorSettings


class Tiny(DoorSettings, env_prefix="SANDMESH_TINY_"):
    enabled: bool = Field(default=False, validation_alias={switch!r})
    size: int = Field(default=1, ge=1)


def open_door(settings, host):
    raise RuntimeError("it is not opened here")


DOOR = DoorPlugin(Tiny, open_door, "{{url}}")
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what installs a distribution with a door, and no setting of this machine."""
    for name in ("SANDMESH_DRIVER", "SANDMESH_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def install_one(
        package: str, door: str = "tiny", source: str = MODULE, switch: str = "SANDMESH_TINY", attribute: str = "DOOR"
    ) -> None:
        folder, module = tmp_path / package, package.replace("-", "_")
        metadata = folder / f"{module}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[sandmesh.doors]\n{door} = {module}:{attribute}\n")
        (folder / f"{module}.py").write_text(source.format(switch=switch))
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install_one


def test_a_door_of_another_package_has_settings_of_its_own(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("tiny-door")
    monkeypatch.setenv("SANDMESH_TINY", "true")
    monkeypatch.setenv("SANDMESH_TINY_SIZE", "3")
    assert {"e2b", "agentscope", "swerex", "sandboxfusion", "tiny"} <= find_doors().keys()
    assert read_settings().doors == {"SANDMESH_TINY": "true", "SANDMESH_TINY_SIZE": "3"}


def test_a_setting_that_does_not_fit_is_refused_by_its_name_and_its_doors(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("tiny-door")
    monkeypatch.setenv("SANDMESH_TINY_SIZE", "0")
    with pytest.raises(InvalidArgument, match="settings of the door tiny do not fit: SANDMESH_TINY_SIZE: "):
        read_settings()


def test_two_doors_of_one_name_are_refused_with_both_packages(install: Install) -> None:
    install("one-door")
    install("another-door")
    with pytest.raises(
        RuntimeUnavailable, match=re.escape("two doors are called tiny, of another-door 1.0 and one-door 1.0: ")
    ):
        read_settings()


def test_two_doors_with_one_setting_are_refused_with_both_names(install: Install) -> None:
    install("one-door")
    install("another-door", door="second")
    problem = "the doors second and tiny both have the setting SANDMESH_TINY"
    with pytest.raises(RuntimeUnavailable, match=problem):
        read_settings()


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({"attribute": "Tiny"}, "the entry point 'tiny_door:Tiny' of the door tiny (of tiny-door 1.0) is wrong: "),
        ({"switch": "TINY"}, "the door tiny has the setting TINY: "),
        ({"source": "import a_package_that_nobody_has"}, "the door tiny needs a package that is not installed"),
    ],
)
def test_an_entry_point_that_gives_no_door_is_named(install: Install, names: dict[str, str], problem: str) -> None:
    install("tiny-door", **names)
    with pytest.raises(RuntimeUnavailable, match=re.escape(problem)):
        find_door("tiny")


class _Door:
    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def add(self, application: web.Application) -> None:
        """Add the routes."""
        for path in self._paths:
            application.router.add_get(path, self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        return web.Response(text=request.path)


def test_two_doors_with_one_path_are_refused_with_both_names() -> None:
    owners, application = PathOwners(), web.Application()
    owners.adding("first", _Door("/a", "/b/{name}"))(application)
    owners.adding("second", _Door("/c"))(application)
    with pytest.raises(InvalidArgument, match=re.escape("the doors first and third both have GET /b/{name}: ")):
        owners.adding("third", _Door("/b/{name}"))(application)


def test_a_door_for_a_later_interface_says_to_upgrade_the_mesh(install: Install) -> None:
    install("tiny-door", source=MODULE.replace('"{{url}}")', '"{{url}}", interface=2)'))
    with pytest.raises(RuntimeUnavailable) as refused:
        find_door("tiny")
    problem = "the door tiny (of tiny-door 1.0) is for version 2 of the interface of doors, and this mesh has 1"
    assert str(refused.value) == f"{problem}: upgrade sandmesh"


def test_a_door_for_an_interface_that_is_gone_says_to_upgrade_its_package(install: Install) -> None:
    install("tiny-door", source=MODULE.replace('"{{url}}")', '"{{url}}", interface=0)'))
    with pytest.raises(RuntimeUnavailable, match="this mesh has 1: upgrade tiny-door"):
        find_door("tiny")


def test_a_door_that_names_its_interface_is_found(install: Install) -> None:
    install("tiny-door", source=MODULE.replace('"{{url}}")', '"{{url}}", interface=1)'))
    assert find_door("tiny").interface == 1

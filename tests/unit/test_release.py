"""What a release is made of: one version everywhere, builds that do not differ, every extra accounted for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest
from scripts.release.artefacts import ROOT, build_twice
from scripts.release.bill import licence_table
from scripts.release.installs import LEFT_OUT, USES, Installed, table
from scripts.release.notes import notes_of
from scripts.release.programs import first_block
from scripts.release.pythons import find_pythons, is_for_everyone
from scripts.release.version import PLACES, read_version, semantic, stale, write_version


def test_every_place_has_the_version() -> None:
    assert stale() == {}


def test_a_new_version_is_written_to_every_place(tmp_path: Path) -> None:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    before = {name: (tmp_path / name).read_text() for name in PLACES}
    write_version("7.8.9rc1", tmp_path)
    assert read_version(tmp_path) == "7.8.9rc1"
    assert stale(tmp_path) == {}
    assert 'appVersion: "7.8.9-rc.1"' in (tmp_path / "deploy/helm/sandmesh/Chart.yaml").read_text()
    write_version(read_version(), tmp_path)
    assert {name: (tmp_path / name).read_text() for name in PLACES} == before


def test_a_place_with_another_version_is_found(tmp_path: Path) -> None:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    text = (tmp_path / "server.json").read_text()
    (tmp_path / "server.json").write_text(text.replace(read_version(), "0.0.1", 1))
    assert stale(tmp_path) == {"server.json": ["0.0.1", read_version()]}


@pytest.mark.parametrize(
    ("version", "expected"), [("0.1.0", "0.1.0"), ("0.1.0.dev0", "0.1.0-dev.0"), ("1.2.0rc3", "1.2.0-rc.3")]
)
def test_helm_gets_a_version_that_it_can_read(version: str, expected: str) -> None:
    assert semantic(version) == expected


def test_what_is_not_a_version_is_refused_in_one_line() -> None:
    command = [sys.executable, "-m", "scripts.release.version", "next"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "next is not a version: write one such as 0.1.0, 0.1.0rc1 or 0.2.0.dev0\n"


def test_every_extra_is_installed_by_a_release_or_left_out_with_a_reason() -> None:
    extras = {str(name) for name in metadata("sandmesh").get_all("Provides-Extra") or ()}
    assert extras - LEFT_OUT.keys() == USES.keys() - {""}


def test_this_python_is_one_that_a_release_is_installed_on() -> None:
    minors = [tuple(version.split(".")[:2]) for version in find_pythons()]
    assert len(minors) == len(set(minors)) > 0
    assert all(int(minor) >= 11 for _, minor in minors)


def test_a_failed_installation_is_in_the_table() -> None:
    rows = [Installed("3.11.2", "", 1.0, 9, 35.1), Installed("3.12.1", "", 2.0, 9, 35.1, "no matching distribution")]
    assert table(rows).splitlines()[-1] == "| the SDK, without an extra | 9 | 35 | 1.0 s | failed |"


def test_an_extra_that_was_only_imported_says_so_in_the_table() -> None:
    rows = [Installed("3.12.1", "local", 2.0, 9, 35.1, note="imported only")]
    assert table(rows).splitlines()[-1] == "| `local` | 9 | 35 | 2.0 s, imported only |"


def test_an_interpreter_in_a_private_directory_is_not_for_everyone(tmp_path: Path) -> None:
    program = tmp_path / "python" / "bin" / "python3.12"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "python").chmod(0o700)
    assert not is_for_everyone(program)
    assert is_for_everyone(Path("/usr/bin/env"))


def test_the_changelog_has_the_notes_of_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert notes_of(read_version(), changelog).startswith("Highlights:")
    with pytest.raises(ValueError, match=r"no part of 9\.9\.9: name it"):
        notes_of("9.9.9", changelog)


def test_licences_are_counted() -> None:
    components = [
        {"name": "a", "version": "1", "licenses": [{"license": {"id": "MIT"}}]},
        {"name": "b", "version": "2", "licenses": [{"expression": "MIT"}]},
        {"name": "c", "version": "3"},
    ]
    rows = licence_table({"components": components}).splitlines()[4:]
    assert rows == ["| MIT | 2 | a 1, b 2 |", "| not named in its metadata | 1 | c 3 |"]


def test_the_first_commands_of_the_readme_need_no_release() -> None:
    assert first_block((ROOT / "README.md").read_text()).splitlines() == [
        'python3 -m venv .venv && .venv/bin/pip install ".[local]"',
        ".venv/bin/python examples/quickstart.py",
    ]


@pytest.mark.needs("git")
def test_two_builds_of_a_commit_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    names = [path.name for path in build_twice("HEAD", tmp_path / "out")]
    version = read_version()
    assert names == [
        f"sandmesh-{version}-py3-none-any.whl",
        f"sandmesh-{version}.tar.gz",
        f"sandmesh-protos-{version}.tar.gz",
    ]

"""The subordinate uids of an ordinary user: found where they are granted, and one for each sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandmeshd.cli.doctor.findings import Health
from sandmeshd.cli.doctor.machine import check_machine
from sandmeshd.mesh import MeshSettings
from sandmeshd.runtime.user_namespaces.subordinate import find_subordinate
from tests.ordinary import run_tests, subordinate_home

PROGRAM = Path(__file__).with_name("subordinate_user.py")


@pytest.fixture
def own() -> str:
    return str(os.geteuid())


def test_what_is_granted_as_uids_and_as_gids_is_found(folder: Path, own: str) -> None:
    (folder / "subuid").write_text(f"broken\nother:1:2\n{own}:5000:10\n{own}:100000:65536\n")
    (folder / "subgid").write_text(f"{own}:100100:65536\n")
    found = find_subordinate(folder)
    assert found.uids == range(100100, 165536) or "newuidmap" in found.lacking


@pytest.mark.parametrize(
    "lines", [(None, None), ("other:1:65536", "other:1:65536"), ("OWN:1:9", "OWN:10:9"), ("OWN:1:9", None)]
)
def test_who_lacks_subordinate_uids_is_told_how_to_get_some(
    folder: Path, own: str, lines: tuple[str | None, ...]
) -> None:
    for name, line in zip(("subuid", "subgid"), lines, strict=True):
        if line is not None:
            (folder / name).write_text(line.replace("OWN", own) + "\n")
    found = find_subordinate(folder)
    assert len(found.uids) == 0
    assert "usermod --add-subuids" in found.fix
    assert str(folder) in found.lacking


def test_who_lacks_newuidmap_is_told_which_package_has_it(
    folder: Path, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("subuid", "subgid"):
        (folder / name).write_text(f"{own}:100000:65536\n")
    monkeypatch.setenv("PATH", str(folder))
    found = find_subordinate(folder)
    assert len(found.uids) == 0
    assert "uidmap" in found.fix


@pytest.mark.needs("root")
def test_the_doctor_says_what_an_ordinary_user_lacks() -> None:
    settings = MeshSettings()
    os.seteuid(65534)
    try:
        found = next(finding for finding in check_machine(settings) if finding.name == "uids")
    finally:
        os.seteuid(0)
    assert found.health is Health.WARNING
    assert "has no subordinate uids" in found.seen
    assert "usermod --add-subuids" in found.fix


@pytest.mark.needs("root", "uidmap")
def test_all_of_it_holds_for_an_ordinary_user_with_subordinate_uids(prepared: None) -> None:
    with subordinate_home() as home:
        run_tests(home, str(PROGRAM))

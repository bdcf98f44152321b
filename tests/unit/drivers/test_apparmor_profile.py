"""The profile of AppArmor that `sandmesh doctor` prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandmeshd.drivers.bubblewrap.executable import find_installed
from sandmeshd.drivers.bubblewrap.probe import LOAD_PROFILE, RESTRICTION, SWITCHES, make_profile


def test_doctor_prints_a_profile_for_the_bwrap_that_is_installed() -> None:
    command = [sys.executable, "-m", "sandmeshd.cli.user", "doctor", "--apparmor-profile"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    program = find_installed()
    assert program is not None
    assert printed == make_profile(program)
    assert f'profile sandmesh-bwrap "{program.resolve()}" flags=(unconfined) {{\n  userns,\n}}\n' in printed


def test_what_forbids_namespaces_names_the_profile() -> None:
    assert SWITCHES[RESTRICTION] == ("1", f"load a profile of AppArmor: {LOAD_PROFILE}")


@pytest.mark.parametrize("name", ['a"b', "a*", "a[b]", "a\nb", "{x}", "@{HOME}", "a\\b"])
def test_a_path_that_would_mean_something_else_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be named in a profile"):
        make_profile(tmp_path / name / "bwrap")

"""Every attempt of `probes` at getting out of a sandbox fails, in both places where user code runs."""

from __future__ import annotations

import pytest

from tests.ordinary import ordinary_home, run_tests

from .conftest import Table, Tables
from .probes.every import PROBES

UNSHOWN = {
    "perf_event_open": "most kernels refuse it to ordinary users",
    "fanotify_init": "only root of the host has it",
    "kexec_load": "only root of the host has it",
    "init_module": "only root of the host has it",
    "finit_module": "only root of the host has it",
    "swapon": "only root of the host has it",
    "syslog": "only root of the host has it",
    "settimeofday": "only root of the host has it",
    "acct": "only root of the host has it",
    "iopl": "only root of the host has it",
    "x32_getpid": "most kernels are built without it",
    "setuid_program": "bwrap itself sees to it",
    "new_device": "no user namespace has it",
    "own_program": "an ordinary user cannot write to the system's programs either",
    "proc_secrets": "only root of the host has them",
    "become_root": "the one user that is mapped is root already",
    "higher_priority": "only root of the host has it",
    "controlling_terminal": "tests have none",
    "packet_socket": "only with the network namespace's own root",
    "xdp_socket": "only with the network namespace's own root",
    "raw_socket": "only with the network namespace's own root",
}
"""Attempts that fail without our walls too, at least for an ordinary user, and why."""


@pytest.mark.parametrize("name", PROBES)
def test_user_codes_programs_cannot(name: str, tables: Tables) -> None:
    assert tables.program[name] == []


@pytest.mark.parametrize("name", PROBES)
def test_cells_cannot(name: str, tables: Tables) -> None:
    assert tables.cell[name] == []


@pytest.mark.parametrize("name", [name for name in PROBES if name not in UNSHOWN])
def test_the_same_succeeds_without_walls(name: str, without_walls: Table) -> None:
    assert without_walls[name] != []


def test_what_cannot_be_shown_is_an_attempt() -> None:
    assert UNSHOWN.keys() <= PROBES.keys()


@pytest.mark.needs("root")
@pytest.mark.timeout(600)
def test_all_of_it_holds_for_an_ordinary_user(built: None) -> None:
    with ordinary_home() as home:
        run_tests(home, "tests/isolation", "-k", "not ordinary_user")

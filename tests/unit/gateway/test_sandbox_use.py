"""What agents say that their sandboxes use: read where it is a number that a machine may have, else refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandmesh.errors import ProtocolMismatch
from sandmeshd.gateway.routes.sandbox_use import read_use

PLAIN: dict[str, Any] = {
    "cpu": 0.5,
    "cpu_seconds": 3.25,
    "memory_bytes": 1 << 30,
    "disk_bytes": None,
    "processes": 7,
    "history": [],
}


def test_the_values_that_are_there_are_read() -> None:
    expected = {"cpu": 0.5, "cpu_seconds": 3.25, "memory_bytes": float(1 << 30), "processes": 7.0}
    assert read_use(json.dumps({**PLAIN, "more": "x"}).encode()) == expected


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**400, 2**61, "1e999", "x", [], {}])
@pytest.mark.parametrize("name", ["cpu", "memory_bytes", "disk_bytes"])
def test_what_no_machine_has_is_refused(name: str, value: object) -> None:
    with pytest.raises(ProtocolMismatch):
        read_use(json.dumps({**PLAIN, name: value}).encode())


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"7", b"{}", b"[" * 100_000, b"\xff", b'{"cpu": 1}', b'[["cpu", 1]]']
)
def test_what_is_no_such_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolMismatch):
        read_use(data)


def test_an_answer_without_end_is_refused() -> None:
    with pytest.raises(ProtocolMismatch):
        read_use(json.dumps({"padding": "x" * 300_000, **PLAIN}).encode())

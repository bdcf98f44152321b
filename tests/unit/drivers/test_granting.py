"""Which files of the host every sandbox may see, by the settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.bubblewrap.host_files import bind_host_files


def test_what_is_there_is_shown_read_only() -> None:
    assert bind_host_files({"/usr/share": "/mnt/b", "/usr/lib": "/mnt/a"}, os.geteuid()) == [
        *("--ro-bind", str(Path("/usr/lib").resolve()), "/mnt/a"),
        *("--ro-bind", str(Path("/usr/share").resolve()), "/mnt/b"),
    ]


@pytest.mark.parametrize(
    ("host", "inside", "said"),
    [
        ("/nowhere/at/all", "/mnt/a", "is not there"),
        ("usr/share", "/mnt/a", "is not there"),
        ("/", "/mnt/a", "may not be shown"),
        ("/proc/self", "/mnt/a", "may not be shown"),
        ("/usr/share", "mnt/a", "not an absolute path inside"),
        ("/usr/share", "/mnt/../usr", "not an absolute path inside"),
        ("/usr/share", "/", "not an absolute path inside"),
        ("/usr/share", "/workspace/data", "the sandbox's own"),
        ("/usr/share", "/opt", "the sandbox's own"),
    ],
)
def test_what_is_not_there_or_not_allowed_is_refused_by_name(host: str, inside: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        bind_host_files({host: inside}, os.geteuid())


def test_what_sandboxes_cannot_reach_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(InvalidArgument, match="cannot pass"):
        bind_host_files({str(closed / "data"): "/mnt/a"}, 65432)

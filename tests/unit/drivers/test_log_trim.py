"""Logs of sandboxes have a bound."""

from __future__ import annotations

import os
from pathlib import Path

from sandmeshd.drivers.bubblewrap.log_trim import trim
from sandmeshd.drivers.node.records import MeshFolders
from sandmeshd.runtime.paths import MeshPaths


def test_the_older_half_goes_and_its_writer_goes_on_after_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for number in range(100):
            os.write(writer, f"line {number:04}\n".encode())
        assert not trim(path, 1000)
        os.write(writer, b"one more\n")
        assert trim(path, 1000)
        os.write(writer, b"the last\n")
    finally:
        os.close(writer)
    lines = path.read_text().splitlines()
    assert lines[-3:] == ["line 0099", "one more", "the last"]
    assert lines[0].startswith("line 00")
    assert path.stat().st_size <= 510


def test_who_follows_a_log_that_was_shortened_reads_on_from_its_begin(tmp_path: Path) -> None:
    paths = MeshPaths("m", tmp_path / "state", tmp_path / "run")
    folder = MeshFolders(paths).folder("sb_1")
    folder.log.parent.mkdir(parents=True)
    folder.log.write_text("x" * 50 + "\n")
    _, end = folder.tail(1000)
    folder.log.write_text("short\n")
    assert folder.tail(1000, end) == (b"short\n", 6)
    assert folder.tail(1000, 6) == (b"", 6)

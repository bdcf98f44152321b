"""Log lines where they cannot be written."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest

from sandmeshd.runtime.telemetry.logs import LossyStream


def test_lines_are_written_as_they_are() -> None:
    target = StringIO()
    stream = LossyStream(target)
    stream.write("one\n")
    stream.write("two\n")
    assert target.getvalue() == "one\ntwo\n"


def test_a_line_for_a_full_disk_is_lost_and_fails_nobody() -> None:
    target = Path("/dev/full").open("w")  # noqa: SIM115 - closing it tries again to write what it keeps
    stream = LossyStream(target)
    for line in ("one\n", "two\n"):
        assert stream.write(line) == 4
    assert stream.lost == 2
    with pytest.raises(OSError, match="No space left"):
        target.close()


def test_a_stream_that_was_closed_fails_nobody() -> None:
    target = StringIO()
    target.close()
    stream = LossyStream(target)
    stream.write("one\n")
    assert stream.lost == 1


def test_the_first_line_that_can_be_written_again_says_how_many_could_not() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(reading, "rb", buffering=0) as out, os.fdopen(writing, "w") as target:
        stream = LossyStream(target)
        while not stream.lost:
            stream.write("x" * 4095 + "\n")
        stream.write("lost too\n")
        out.read(1 << 20)
        stream.write("last\n")
        lines = out.read(1 << 20).decode().splitlines()
    assert lines[-1] == "last"
    record = json.loads(lines[-2])
    assert (record["event"], record["lines"]) == ("lines of this log could not be written", 2)

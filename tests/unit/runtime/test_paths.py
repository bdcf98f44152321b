"""The directories of a mesh: where the file system has what makes many small files cheap, it is used."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from pathlib import Path

from sandmeshd.runtime.paths import MeshPaths, spread

GET_FLAGS, TOP = 0x80086601, 0x20000


def is_top(path: Path) -> bool:
    """Return whether ext4 chooses the place of each directory in it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return bool(struct.unpack("l", fcntl.ioctl(fd, GET_FLAGS, bytes(8)))[0] & TOP)
    finally:
        os.close(fd)


def test_sandboxes_are_spread_over_the_disk_where_it_is_ext4(tmp_path: Path) -> None:
    paths = MeshPaths("spread", tmp_path / "state", tmp_path / "run")
    paths.make()
    kind = subprocess.run(
        ["/usr/bin/stat", "-f", "-c", "%T", str(tmp_path)], capture_output=True, text=True, check=True
    )
    if kind.stdout.strip() == "ext2/ext3":
        assert (is_top(paths.sandboxes), is_top(paths.state)) == (True, False)
        (paths.sandboxes / "sb_one").mkdir()
        assert not is_top(paths.sandboxes / "sb_one")


def test_a_file_system_without_that_flag_is_left_as_it_is() -> None:
    spread(Path("/proc"))
    spread(Path("/dev/shm"))

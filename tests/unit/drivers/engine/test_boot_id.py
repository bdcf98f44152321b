"""A boot_id of a container's own: what is not that container's process gets none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandmeshd.drivers.node.mounts.boot_id import mount_boot_id

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def test_a_process_that_is_of_no_such_container_is_left_alone(tmp_path: Path) -> None:
    before = BOOT_ID.read_text()
    with pytest.raises(ProcessLookupError):
        mount_boot_id(os.getpid(), "0" * 64, tmp_path)
    with pytest.raises(FileNotFoundError):
        mount_boot_id(1 << 22, "0" * 64, tmp_path)
    assert BOOT_ID.read_text() == before

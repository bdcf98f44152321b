"""A kernel that mounts no overlayfs in user namespaces: what sandboxes with images are refused with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image_roots import busybox_root, write_image

pytestmark = [pytest.mark.needs("root", "busybox"), pytest.mark.timeout(300)]

PROGRAM = """
import sys
import pyseccomp
from sandmesh import BaseSandbox, SandmeshError

# Of all mounts only that of a root's overlay has these flags: MS_NODEV.
filter = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
filter.add_rule(pyseccomp.ERRNO(1), "mount", pyseccomp.Arg(3, pyseccomp.EQ, 4))
filter.load()
with BaseSandbox() as box:
    print(box.run_shell_command("echo base").text)
try:
    BaseSandbox(image=sys.argv[1]).start()
except SandmeshError as error:
    print(type(error).__name__, error.message)
"""


def test_a_kernel_without_overlayfs_in_namespaces_is_named_with_what_to_do(tmp_path: Path) -> None:
    image = write_image(tmp_path / "image", busybox_root())
    own = {**os.environ, "SANDMESH_EPHEMERAL": "true"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, image], capture_output=True, text=True, timeout=250, env=own, check=False
    )
    base, _, said = done.stdout.partition("\n")
    assert base.strip() == "base", done.stderr[-2000:]
    assert "SandboxStartFailed" in said
    assert "images need overlayfs in user namespaces: load the module overlay, take Linux 5.11" in said

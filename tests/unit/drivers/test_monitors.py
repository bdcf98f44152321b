"""What is left of a sandbox's monitor when the sandbox has ended."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from sandmeshd.drivers.node.processes import Sandboxed
from sandmeshd.drivers.node.records import Folder


def _ended_sandbox(tmp_path: Path, monitor: subprocess.Popen[bytes], *, lives_on: bool) -> Sandboxed:
    with subprocess.Popen(["/bin/true"]) as init:
        pidfd = os.pidfd_open(init.pid)
    folder = Folder("one", tmp_path, tmp_path)
    folder.status.write_text('{"exit-code": 137}')
    return Sandboxed(folder, pidfd, os.pidfd_open(monitor.pid), lives_on)


def test_a_monitor_that_ends_right_after_it_noted_the_end_is_reaped(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "0.3"]) as monitor:
        sandbox = _ended_sandbox(tmp_path, monitor, lives_on=False)
        asyncio.run(sandbox.ended())
        sandbox.close()
        with pytest.raises(ChildProcessError):
            os.waitpid(monitor.pid, os.WNOHANG)
        monitor.returncode = 0


def test_a_zygote_that_lives_on_is_not_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as zygote:
        try:
            sandbox = _ended_sandbox(tmp_path, zygote, lives_on=True)
            asyncio.run(sandbox.ended(patience=30.0))
            sandbox.close()
            assert zygote.poll() is None
        finally:
            zygote.kill()

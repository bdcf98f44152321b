"""Programs that tests run beside themselves, with a log of each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


class Program:
    """A process that can be ended and started again."""

    def __init__(self, folder: Path, name: str, command: Sequence[str]) -> None:
        self._log = folder / f"{name}.log"
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        # What a proxy of the environment would catch is of this machine.
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Check that it runs."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"{self._command[0]} ended:\n{self.log()}")

    def log(self) -> str:
        """Return the end of what it wrote."""
        return self._log.read_text(errors="replace")[-4000:]

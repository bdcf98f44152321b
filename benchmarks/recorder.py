"""Records the functions of sandmesh and sandmeshd that a process enters. It imports neither, so it can run anywhere."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

OURS = re.compile(r".*/(sandmeshd?/(?!site/).*)")
"""A file of the two packages; /opt/sandmesh/site is where sandboxes have them, among others."""
START, STOP = signal.SIGRTMIN + 1, signal.SIGRTMIN + 2
"""To a process with a recorder; a mesh has uses of its own for the common ones."""
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"}


class Recorder:
    """The functions entered while it is on, each once, in the order of their first entry."""

    def __init__(self) -> None:
        self.on = False
        self.entered: dict[str, None] = {}
        self._is_ours: dict[Any, str] = {}

    def install(self) -> None:
        """Watch this thread and those that start from now on; processes that they fork are watched too."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def uninstall(self) -> None:
        """Watch no longer."""
        self.on = False
        threading.setprofile(None)
        sys.setprofile(None)

    def start(self) -> None:
        """Forget what was recorded and begin."""
        self.entered.clear()
        self.on = True

    def follow_signals(self, report: Callable[[], str]) -> None:
        """Start at the signal START; stop at STOP and write what was entered into the file that `report` names."""

        def stop(number: int, frame: object) -> None:
            self.on = False
            with open(report(), "w") as file:  # noqa: PTH123 - pathlib is a slow import, and this runs in agents
                file.write(json.dumps(list(self.entered)))

        signal.signal(START, lambda number, frame: self.start())
        signal.signal(STOP, stop)

    def _profile(self, frame: Any, event: str, argument: object) -> None:
        if self.on and event == "call":
            code = frame.f_code
            name = self._is_ours.get(code)
            if name is None:
                name = self._is_ours[code] = _name(code)
            if name:
                self.entered.setdefault(name)


class CellRecorder(Recorder):
    """Records one turn of a kernel's loop, from one wait for a frame to the next."""

    def _profile(self, frame: Any, event: str, argument: object) -> None:
        # Its name is all that a method of a select.poll says of itself.
        if event == "c_call" and getattr(argument, "__name__", "") == "poll":
            self.on = not self.entered
        super()._profile(frame, event, argument)


def _name(code: Any) -> str:
    """Return "file:function" of a function of ours, an empty string of any other."""
    found = OURS.fullmatch(code.co_filename)
    return f"{found[1]}:{code.co_qualname}" if found and code.co_name not in COMPREHENSIONS else ""

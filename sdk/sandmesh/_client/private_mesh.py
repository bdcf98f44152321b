"""The private mesh of this process: a child process that ends when the pipe which only this process holds closes.

So it ends with this process however that ends, without signal handlers or atexit. The program that serves it is found
by entry point and never imported here.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, TextIO

from sandmesh.errors import DeadlineExceeded, MeshUnavailable, RuntimeUnavailable
from sandmesh.shared.child_process import read_error, spawn_child

WIDTH = 24


class ProgressLine:
    """Shows (message, fraction) on one line that it overwrites; a fraction below 0 is one that cannot be told."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._last = ""

    def show(self, message: str, fraction: float) -> None:
        """Show how far it is."""
        if self._terminal:
            self._last = f"{_bar(fraction)} {message}"
            self._write(f"\r\x1b[2K{self._last}")
        elif message != self._last:
            self._last = message
            self._write(f"sandmesh: {message}\n")

    def __enter__(self) -> ProgressLine:
        """Return itself."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Take the line away."""
        if self._terminal and self._last:
            self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _bar(fraction: float) -> str:
    if fraction < 0:
        return "sandmesh:"
    done = round(min(fraction, 1.0) * WIDTH)
    return f"sandmesh: [{'#' * done}{'.' * (WIDTH - done)}] {min(fraction, 1.0):4.0%}"


GROUP = "sandmesh.private_mesh"
INSTALL = 'pip install "sandmesh[local]"'
LAST_WORDS = 4_000


def find_program(entries: Iterable[EntryPoint] | None = None) -> str:
    """Return the module that serves a private mesh.

    Raises:
        RuntimeUnavailable: None is installed, or this is not Linux; the message says what to do.
    """
    if sys.platform != "linux":
        fix = "pass base_url=, or set SANDMESH_ADDRESS and SANDMESH_TOKEN"
        raise RuntimeUnavailable(f"a mesh runs on Linux, not on {sys.platform}: {fix}", {"fix": fix})
    for entry in entry_points(group=GROUP) if entries is None else entries:
        if _importable(entry.value):
            return entry.value
    raise _not_installed()


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


class PrivateMesh:
    """The child process and what it said."""

    def __init__(self, module: str) -> None:
        self._lock = threading.Lock()
        self._address: str | None = None
        self._failed = False
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._child = spawn_child([sys.executable, "-m", module], output=self._log)
        # Its frame keeps the child referenced and reaps it, so that nothing is left to do at exit.
        self._words = ""
        self._waiter = threading.Thread(target=self._reap, name="sandmesh-private", daemon=True)
        self._waiter.start()

    @property
    def ended(self) -> bool:
        """Whether the child has ended, or is told to because it failed."""
        return self._failed or self._child.process.poll() is not None

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.process.pid

    def wait(self, seconds: float) -> bool:
        """Wait so long for its end, and say whether it came."""
        self._waiter.join(seconds)
        return not self._waiter.is_alive()

    def disown(self) -> None:
        """Close this process's ends of the pipes: no other holder is left, or none but the process that forked it."""
        self._child.release()

    def address(self, patience: float) -> str:
        """Wait until the mesh listens and give its address.

        A first start builds what sandboxes are made of, so `patience` (seconds) bounds its silence, not the whole.

        Raises:
            SandmeshError: What the mesh says it cannot do.
            MeshUnavailable: It ended without a word.
            DeadlineExceeded: It was silent for too long.
        """
        with self._lock:
            if self._address is None:
                try:
                    self._address = self._wait(patience)
                except BaseException:
                    self._failed = True
                    self.disown()
                    raise
            return self._address

    def _wait(self, patience: float) -> str:
        with ProgressLine(sys.stderr) as progress:
            for line in _lines(self._child.status, patience):
                said: dict[str, Any] = json.loads(line)
                if "progress" in said:
                    progress.show(str(said["progress"]["message"]), float(said["progress"].get("fraction", -1)))
                elif "error" in said:
                    raise read_error(said)
                else:
                    return str(said["address"])
        words = self._last_words()
        if "ModuleNotFoundError" in words:
            raise _not_installed(words.splitlines()[-1])
        last = words.rpartition("\n")[2]
        raise MeshUnavailable(f"the private mesh ended before it was ready: {last}", {"detail": words})

    def _reap(self) -> None:
        code = self._child.process.wait()
        with self._log:
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - LAST_WORDS))
            self._words = self._log.read().decode(errors="backslashreplace").strip() or f"exit code {code}"

    def _last_words(self) -> str:
        self._waiter.join()
        return self._words


def _lines(descriptor: int, patience: float) -> Iterator[bytes]:
    buffer = b""
    deadline = time.monotonic() + patience
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise DeadlineExceeded(f"the private mesh said nothing for {patience:g} s", changed=False)
            data = os.read(descriptor, 65536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            deadline = time.monotonic() + patience
            yield from lines


def _not_installed(detail: str = "") -> RuntimeUnavailable:
    message = f"no mesh address was passed and no mesh runs on this machine: {INSTALL}, or pass base_url="
    return RuntimeUnavailable(message, {"fix": INSTALL, "detail": detail})

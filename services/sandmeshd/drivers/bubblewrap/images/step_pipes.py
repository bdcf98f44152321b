"""The pipes between a build and the sandbox of one of its steps."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StepDirectories:
    """The directories of a step on the host."""

    disk: Path
    """What it changes of the image."""
    sockets: Path
    """What it has for itself."""
    log: Path


class StepPipes:
    """The descriptors of a step; of each pipe the reader is first."""

    def __init__(self, place: StepDirectories, file: Path | None) -> None:
        self._open: set[int] = set()
        self.output, self.layer, self.ready, self._life = (self._pipe() for _ in range(4))
        # A command opens its output once more as /dev/stdout, where the pipe's owner has no id inside.
        os.fchmod(self.output[1], 0o666)
        self.log = self._opened(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.status = self._opened(place.log.with_name("status"), os.O_WRONLY | os.O_CREAT)
        self.input = -1 if file is None else self._opened(file, os.O_RDONLY)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe2(os.O_CLOEXEC)
        self._open |= set(ends)
        return ends

    def _opened(self, path: Path, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        self._open.add(descriptor)
        return descriptor

    def inside(self) -> dict[str, int]:
        """Return the descriptors that a step uses, by name."""
        names = {"output": self.output, "layer": self.layer, "ready": self.ready}
        return {**{name: writer for name, (_, writer) in names.items()}, "life": self._life[0], "input": self.input}

    def kept(self) -> list[int]:
        """Return those that PID 1 keeps beside `ready`."""
        return [self.output[1], self.layer[1], self._life[0], *([self.input] if self.input >= 0 else [])]

    def theirs(self) -> tuple[int, ...]:
        """Return all that are passed on."""
        return (*self.kept(), self.ready[1], self.status)

    def close_theirs(self) -> None:
        """Close this process's copies of what was passed on."""
        self._close((*self.theirs(), self.log))

    def close_life(self) -> None:
        """Close what ends the step when it is closed."""
        self._close([self._life[1]])

    def close(self) -> None:
        """Close what is open."""
        self._close(list(self._open))

    def _close(self, descriptors: Iterable[int]) -> None:
        for descriptor in descriptors:
            if descriptor in self._open:
                self._open.discard(descriptor)
                os.close(descriptor)


@contextmanager
def open_pipes(place: StepDirectories, file: Path | None) -> Generator[StepPipes]:
    """Yield the pipes of a step, which reads `file`, if any."""
    pipes = StepPipes(place, file)
    try:
        yield pipes
    finally:
        pipes.close()

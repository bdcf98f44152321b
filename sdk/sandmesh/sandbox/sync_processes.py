"""Processes for programs without an event loop: each method is the async twin's, one line a method."""

from __future__ import annotations

from typing import Self

from sandmesh._calls.feed import OutputEvent
from sandmesh._client.sync import BlockingIterator, Facade, blocking, blocking_twin
from sandmesh.events import Result
from sandmesh.sandbox.processes import ProcessAsync, ProcessesAsync


class Process(Facade):
    """A process of a sandbox, like subprocess.Popen.

    `for event in process` gives its output. Who reads slowly slows it: output that was not taken holds it up once a
    window (1 MiB) is full. While nobody reads, the `wait` methods let the oldest output go and leave a Dropped.
    """

    twin: ProcessAsync

    @property
    def id(self) -> str:
        """Its id, by which `box.processes.attach` finds it again."""
        return self.twin.id

    @property
    def pid(self) -> int | None:
        """Its process id as the sandbox's processes see it; None where it was attached to after that was told."""
        return self.twin.pid

    @property
    def command(self) -> str:
        """What it runs."""
        return self.twin.command

    @property
    def result(self) -> Result | None:
        """How it ended; None while it runs."""
        return self.twin.result

    def __iter__(self) -> BlockingIterator[OutputEvent]:
        """Read its output."""
        return BlockingIterator(aiter(self.twin), "ProcessAsync")

    def __enter__(self) -> Self:
        """Give itself; the end of the block ends the process."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """End the process if it still runs."""
        self._end()

    write = blocking(ProcessAsync.write)
    close_stdin = blocking(ProcessAsync.close_stdin)
    resize = blocking(ProcessAsync.resize)
    send_signal = blocking(ProcessAsync.send_signal)
    kill = blocking(ProcessAsync.kill)
    wait = blocking(ProcessAsync.wait)
    wait_for_exit = blocking(ProcessAsync.wait_for_exit)
    wait_for_log = blocking(ProcessAsync.wait_for_log)
    wait_for_port = blocking(ProcessAsync.wait_for_port)
    detach = blocking(ProcessAsync.detach)
    _end = blocking(ProcessAsync.__aexit__)


class Processes(Facade):
    """The processes of a sandbox: `box.processes`."""

    def __init__(self, twin: ProcessesAsync) -> None:
        self.twin: ProcessesAsync = twin

    start = blocking_twin(Process, ProcessesAsync.start)
    attach = blocking_twin(Process, ProcessesAsync.attach)
    list = blocking(ProcessesAsync.list)

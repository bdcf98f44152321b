"""Processes, terminals, kernels and streams, as the agent of every driver's sandboxes must have them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link
from sandmeshd.agentlink.link import AgentLink
from sandmeshd.drivers.conformance.assertions import expect, expect_equal
from sandmeshd.drivers.conformance.inside import PATIENCE_SECONDS, call, run_cell
from sandmeshd.drivers.conformance.subject import Subject

MEGABYTES = 3
PRINTS = f"import sys\nfor n in range({MEGABYTES}000000 // 10): sys.stdout.write('%09d\\n' % n)\nsys.exit(7)"

_BUSY_SECONDS = 0.3
WAITED_SECONDS = 4.0
"""After which an unused sandbox has done what it does meanwhile."""
FIRST = """
import json, sys
names = [name for name in globals() if not name.startswith('_') and name not in {'json', 'sys', 'In', 'Out'}]
print(json.dumps([sorted(names), len(In), Out, _i + _ii + _iii, [n for n in dir(sys) if n.startswith('last_')]]))
"""


class RecordedCall(AgentCall):
    """One call on a link, with all that came of it."""

    def __init__(self, link: AgentLink, call_id: str = "") -> None:
        super().__init__(link, call_id)
        self.events: list[call_pb2.CallEvent] = []

    async def read(self) -> bool:
        """Read the next events; return whether they were the last."""
        self.events += await self.receive()
        return self.result is not None

    @property
    def output(self) -> bytes:
        """What was written."""
        return b"".join(event.output.data for event in self.events)


def _started(
    sandbox: pb.RuntimeSandbox, arguments: Mapping[str, object], inputs: Sequence[bytes], link: AgentLink
) -> RecordedCall:
    stream = RecordedCall(link)
    stream.start(sandbox.sandbox_id, "start_process", arguments, takes_input=True)
    for number, data in enumerate(inputs, 1):
        stream.send(input=call_pb2.Input(sequence=number, data=data, end=number == len(inputs)))
    return stream


async def _run(sandbox: pb.RuntimeSandbox, arguments: Mapping[str, object], *inputs: bytes) -> RecordedCall:
    async with open_link(sandbox, PATIENCE_SECONDS) as link:
        stream = _started(sandbox, arguments, inputs, link)
        while not await stream.read():
            pass
        return stream


async def a_process_reads_its_input_to_the_end(subject: Subject) -> None:
    """Bytes arrive as they are, in order, and their end is told."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        data = bytes(range(256)) * 1000
        found = await _run(sandbox, {"command": ["cat"]}, data[:1000], data[1000:])
        expect_equal(found.output, data, "what came back")
        expect_equal(found.events[-1].result.exit_code, 0, "the exit code")


async def a_sandbox_reports_what_it_uses(subject: Subject) -> None:
    """Its agent counts the processor time, the memory and the number of its processes."""
    async with (
        subject.open() as driver,
        subject.sandbox(driver) as sandbox,
        open_link(sandbox, PATIENCE_SECONDS) as link,
    ):
        busy = _started(sandbox, {"command": "echo up; while :; do :; done"}, (), link)
        while b"up" not in busy.output:
            await busy.read()
        used: list[Any] = []
        while len(used) < 2 or used[-1]["cpu_seconds"] < used[0]["cpu_seconds"] + _BUSY_SECONDS:
            stats = RecordedCall(link)
            stats.start(sandbox.sandbox_id, "read_stats", {})
            while not await stats.read():
                pass
            used.append(json.loads(stats.events[-1].result.structured_json))
        expect(used[-1]["cpu"] > 0, f"a busy sandbox uses {used[-1]}")
        expect(used[-1]["processes"] > 0, f"a sandbox with a process has {used[-1]}")
        expect(used[-1]["memory_bytes"] > 0, f"a process has memory: {used[-1]}")


async def a_process_has_a_terminal_of_its_own(subject: Subject) -> None:
    """It is one of the sandbox, of the size that was asked for, and keys are signals there."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        size = {"rows": 33, "columns": 111}
        found = await _run(sandbox, {"command": "tty; stty size", "terminal": size})
        lines = found.output.decode().split()
        expect(lines[0].startswith("/dev/pts/"), f"tty said {lines}")
        expect_equal(lines[1:], ["33", "111"], "the size")
        async with open_link(sandbox, PATIENCE_SECONDS) as link:
            asleep = _started(sandbox, {"command": "echo up; exec sleep 1000", "terminal": size}, (), link)
            while b"up" not in asleep.output:
                await asleep.read()
            asleep.send(input=call_pb2.Input(sequence=1, data=b"\x03"))
            while not await asleep.read():
                pass
        expect_equal(asleep.events[-1].result.signal, 2, "the signal of Ctrl-C")


async def a_broken_link_loses_nothing_of_a_stream(subject: Subject) -> None:
    """A call that was attached to again goes on after the last event that came."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        async with open_link(sandbox, PATIENCE_SECONDS) as link:
            first = _started(sandbox, {"command": ["python3", "-c", PRINTS]}, (b"",), link)
            while len(first.output) < 500_000:
                await first.read()
        async with open_link(sandbox, PATIENCE_SECONDS) as link:
            rest = RecordedCall(link, first.call_id)
            last = first.events[-1].sequence
            attach = call_pb2.Attach(sandbox_id=sandbox.sandbox_id, call_id=first.call_id, after_sequence=last)
            rest.send(attach=attach)
            while not await rest.read():
                pass
        numbers = [event.sequence for event in (*first.events, *rest.events)]
        expect_equal(numbers, list(range(1, len(numbers) + 1)), "the events' numbers")
        wanted = b"".join(b"%09d\n" % number for number in range(MEGABYTES * 100_000))
        expect(first.output + rest.output == wanted, "the output is not what was written")
        expect_equal(rest.events[-1].result.exit_code, 7, "the exit code")


async def kernels_of_a_sandbox_are_apart(subject: Subject) -> None:
    """Each has its own variables; what one raises is told in parts."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        for name in ("one", "two"):
            await call(sandbox, "create_kernel", {"kernel_id": name})
            await call(sandbox, "run_cell", {"kernel_id": name, "code": f"x = '{name}'"})
        for name in ("one", "two"):
            found = await call(sandbox, "run_cell", {"kernel_id": name, "code": "print(x)"})
            expect_equal(found.stdout, f"{name}\n", "the variable")
        await call(sandbox, "delete_kernel", {"kernel_id": "one"})
        gone = await call(sandbox, "run_cell", {"kernel_id": "one", "code": "x"})
        expect("does not exist" in gone.message, f"a deleted kernel said {gone.message!r}")


async def a_sandbox_that_waited_runs_its_first_cell_as_its_first(subject: Subject) -> None:
    """What it rehearses while it waits leaves nothing: no names, no history, no counts."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        await asyncio.sleep(WAITED_SECONDS)
        found = await run_cell(sandbox, FIRST)
        expect_equal(found.stdout, '[["exit", "get_ipython", "open", "quit"], 2, {}, "", []]\n', "the first cell")
        found = await run_cell(sandbox, "print(len(In), _i1 != '1+1')")
        expect_equal(found.stdout, "3 True\n", "the second cell")

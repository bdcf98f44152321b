"""Marks: states of files and of Python kernels to which a sandbox returns, again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.conformance.assertions import expect, expect_equal
from sandmeshd.drivers.conformance.input_calls import carry
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.drivers.conformance.subject import Subject

_PREPARE = "mkdir d && echo 1 > d/f && chmod 600 d/f && ln -s d/f link && echo 2 > kept"
_CHANGE = "rm link && echo other > d/f && chmod 644 d/f && touch new && mkdir -p more/deep"
_SEEN = "find . -printf '%P %y %m %l\\n' | sort; cat d/f kept"


async def _ask(sandbox: pb.RuntimeSandbox, tool: str, **arguments: object) -> Mapping[str, Any]:
    carried = await carry(sandbox, tool, arguments)
    expect(not carried.result.is_error, f"{tool} ended with {carried.result.message!r}")
    return carried.facts


async def files_are_what_they_were_when_a_mark_was_made(subject: Subject) -> None:
    """Again and again, with modes, links and names; a mark that was dropped is refused, and nothing is changed."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        expect_equal((await run(sandbox, _PREPARE)).exit_code, 0, "filling it")
        before = (await run(sandbox, _SEEN)).stdout
        held = await _ask(sandbox, "fs.hold_state", note="of a test")
        for _ in range(2):
            await run(sandbox, _CHANGE)
            expect((await run(sandbox, _SEEN)).stdout != before, "nothing was changed")
            await _ask(sandbox, "fs.return_to_state", state_id=held["state_id"])
            expect_equal((await run(sandbox, _SEEN)).stdout, before, "the files after the return")
        expect_equal((await run(sandbox, "ls -A")).stdout, "d\nkept\nlink\n", "what is seen of the mark itself")
        (listed,) = (await _ask(sandbox, "fs.list_states"))["states"]
        expect_equal((listed["state_id"], listed["note"]), (held["state_id"], "of a test"), "the listed")
        await _ask(sandbox, "fs.drop_state", state_id=held["state_id"])
        await run(sandbox, "echo 3 > kept")
        refused = await carry(sandbox, "fs.return_to_state", {"state_id": held["state_id"]})
        expect(refused.result.is_error, "a mark that was dropped is returned to")
        expect_equal((await run(sandbox, "cat kept")).stdout, "3\n", "the file afterwards")


async def a_kernel_is_what_it_was_when_a_mark_was_made(subject: Subject) -> None:
    """Again and again; a kernel with a thread is refused by its name, and goes on. So is any on a user-space kernel."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities
        await run_cell(sandbox, "tried = []; big = bytearray(8 << 20)")
        if able.isolation == "user-space kernel":
            await _refuse(sandbox, "gVisor")
            return
        held = await _ask(sandbox, "mark_kernel", kernel_id="default")
        for _ in range(2):
            await run_cell(sandbox, "tried.append(1); big[:] = b'x' * len(big)")
            await _ask(sandbox, "rewind_kernel", kernel_id="default", mark_id=held["mark_id"])
            expect_equal((await run_cell(sandbox, "print(tried, max(big))")).stdout, "[] 0\n", "its variables")
        await _ask(sandbox, "drop_mark", mark_id=held["mark_id"])
        await run_cell(sandbox, "import threading; e = threading.Event(); threading.Thread(target=e.wait).start()")
        await _refuse(sandbox, "thread")


async def _refuse(sandbox: pb.RuntimeSandbox, named: str) -> None:
    refused = await carry(sandbox, "mark_kernel", {"kernel_id": "default"})
    expect(named in refused.result.message, f"what cannot be held is marked: {refused.result.message!r}")
    expect_equal((await run_cell(sandbox, "print(tried)")).stdout, "[]\n", "the kernel afterwards")

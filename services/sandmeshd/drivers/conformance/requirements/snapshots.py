"""Snapshots: what a sandbox was at one moment, and others that begin with it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import InvalidArgument, SandboxNotFound, SnapshotNotFound
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect, expect_equal, expect_error
from sandmeshd.drivers.conformance.input_calls import carry
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.conformance.subject import Subject, new_id

_FILL = (
    "mkdir -p a/b ~/.config && head -c 3000000 /dev/urandom > a/b/random && printf secret > ~/.config/token"
    " && chmod 600 ~/.config/token && ln -s ../nowhere a/link && touch $(printf 'a/\\377') && chmod 500 a/b"
    " && printf x > a/program && chmod 6755 a/program && touch -h -d @1000000000 a/link a/b a"
)
_SEEN = (
    "sha256sum < a/b/random; readlink a/link; cat ~/.config/token; ls -A a | od -An -c;"
    " stat -c '%a %U' a/b ~/.config/token a/program; stat -c %Y a/link a/b a"
)
_COUNTS = "setsid sh -c 'n=0; while :; do n=$((n+1)); echo $n > one; echo $n > two; done' > /dev/null 2>&1 &"

_MOVES = 'a=$(cat one); until b=$(cat one) && [ -n "$b" ] && [ "$a" != "$b" ]; do sleep 0.01; done'


@asynccontextmanager
async def _snapshot(driver: Driver, sandbox: pb.RuntimeSandbox) -> AsyncGenerator[pb.RuntimeSnapshot]:
    name = f"snap_{secrets.token_hex(13)}"
    request = pb.SnapshotSandboxRequest(sandbox_id=sandbox.sandbox_id, snapshot_id=name, record_labels={"whose": "a"})
    try:
        yield (await driver.snapshot_sandbox(request)).snapshot
    finally:
        await driver.delete_snapshot(pb.DeleteSnapshotRequest(snapshot_id=name))


async def _able(driver: Driver) -> bool:
    return (await driver.get_info(pb.GetInfoRequest())).capabilities.snapshot


async def a_sandbox_begins_with_a_snapshot(subject: Subject) -> None:
    """Files, modes, times, links and the home are what they were, also when the first sandbox is gone."""
    async with subject.open() as driver:
        if not await _able(driver):
            return
        made = (await driver.create_sandbox(subject.request())).sandbox
        filled = await run(made, _FILL)
        expect_equal(filled.exit_code, 0, f"filling it ({filled.stderr})")
        before = await run(made, _SEEN)
        async with _snapshot(driver, made) as taken:
            await run(made, "rm -rf a ~/.config; touch later")
            await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=made.sandbox_id))
            async with subject.open() as again, subject.sandbox(again, snapshot_id=taken.snapshot_id) as other:
                expect_equal((await run(other, _SEEN)).stdout, before.stdout, "what the other has")
                expect_equal((await run(other, "ls -A")).stdout, "a\n", "the other's workspace")


async def a_snapshot_is_listed_until_it_is_deleted(subject: Subject) -> None:
    """With what was given along; a repeated request gives the same one; deleting leaves nothing."""
    async with subject.open() as driver:
        if not await _able(driver):
            return
        everything = subject.leftovers()
        async with subject.sandbox(driver) as sandbox:
            async with _snapshot(driver, sandbox) as taken:
                query = pb.ListSnapshotsRequest(mesh_id=subject.mesh_id)
                expect_equal(list((await driver.list_snapshots(query)).snapshots), [taken], "the listed")
                others = pb.ListSnapshotsRequest(mesh_id=f"{subject.mesh_id}-other")
                expect_equal(len((await driver.list_snapshots(others)).snapshots), 0, "another mesh's")
                expect_equal(dict(taken.record_labels), {"whose": "a"}, "what was given along")
                expect(taken.size_bytes > 0 and taken.checksum.startswith("sha256:"), f"it is described as {taken}")
                same = pb.SnapshotSandboxRequest(sandbox_id=sandbox.sandbox_id, snapshot_id=taken.snapshot_id)
                expect_equal((await driver.snapshot_sandbox(same)).snapshot, taken, "the repeated")
            expect_equal(len((await driver.list_snapshots(query)).snapshots), 0, "what is listed after it was deleted")
        expect_equal(subject.leftovers() - everything, set[str](), "what is left")


async def nothing_runs_while_a_snapshot_is_taken(subject: Subject) -> None:
    """Two files that a loop writes in turn are of one moment; the loop goes on afterwards."""
    async with subject.open() as driver:
        if not await _able(driver):
            return
        async with subject.sandbox(driver) as sandbox:
            await run(sandbox, f"head -c 8000000 /dev/zero > pad; {_COUNTS} until [ -s two ]; do sleep 0.01; done")
            async with (
                _snapshot(driver, sandbox) as taken,
                subject.sandbox(driver, snapshot_id=taken.snapshot_id) as other,
            ):
                one, two = (await run(other, "cat one; echo /; cat two")).stdout.split("/")
                # The shell empties a file before it writes it.
                apart = int(one or 0) - int(two or 0) if one.strip() and two.strip() else 0
                expect(apart in (0, 1), f"the files are of different moments: {one!r}, {two!r}")
            expect_equal((await run(sandbox, _MOVES)).exit_code, 0, "waiting until the loop goes on")


async def a_snapshot_that_nobody_waits_for_leaves_nothing(subject: Subject) -> None:
    """It is whole or not there, whenever its caller goes away; what stood still goes on, and the next one is whole."""
    async with subject.open() as driver:
        if not await _able(driver):
            return
        listing = pb.ListSnapshotsRequest(mesh_id=subject.mesh_id)
        async with subject.sandbox(driver) as sandbox:
            await run(sandbox, f"head -c 10000000 /dev/zero > pad; {_COUNTS} until [ -s two ]; do sleep 0.01; done")
            for seconds in (0.0, 0.01, 0.05):
                name = f"snap_{secrets.token_hex(13)}"
                taking = driver.snapshot_sandbox(
                    pb.SnapshotSandboxRequest(sandbox_id=sandbox.sandbox_id, snapshot_id=name)
                )
                task = asyncio.ensure_future(taking)
                await asyncio.wait([task], timeout=seconds)
                task.cancel()
                await asyncio.wait([task])
                expect_equal((await run(sandbox, _MOVES)).exit_code, 0, "waiting until the loop goes on")
                async with _snapshot(driver, sandbox) as taken:
                    there = {snapshot.snapshot_id for snapshot in (await driver.list_snapshots(listing)).snapshots}
                    expect(taken.snapshot_id in there and taken.size_bytes > 10_000_000, f"the next one is {taken}")
                await driver.delete_snapshot(pb.DeleteSnapshotRequest(snapshot_id=name))
                left = [path for path in subject.leftovers() if "snapshots" in path]
                expect_equal(left, [], "what is left of snapshots")


async def what_is_no_snapshot_starts_nothing(subject: Subject) -> None:
    """SNAPSHOT_NOT_FOUND, INVALID_ARGUMENT for an id that is a path; no sandbox is made."""
    async with subject.open() as driver:
        if not await _able(driver):
            return
        for bad, error in (("snap_never", SnapshotNotFound), ("../../etc", InvalidArgument)):
            request = subject.request(new_id(), snapshot_id=bad)
            await expect_error(error, driver.create_sandbox(request))
            inspected = driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=request.sandbox_id))
            await expect_error(SandboxNotFound, inspected)
        await expect_error(
            SandboxNotFound,
            driver.snapshot_sandbox(pb.SnapshotSandboxRequest(sandbox_id=new_id(), snapshot_id="snap_x")),
        )
        await driver.delete_snapshot(pb.DeleteSnapshotRequest(snapshot_id="snap_never"))


_CHANGE = "echo 2 > changed && rm gone && mkdir new && ln -s ../changed new/link && chmod 500 new"
_CHANGED = "cat changed; ls -A . new; readlink new/link; stat -c %a new"


async def changes_in_a_copy_are_applied_to_the_first_sandbox_or_conflict(subject: Subject) -> None:
    """All of them are, or none with the paths that both have changed; without snapshots there are no copies."""
    async with subject.open() as driver:
        if not await _able(driver):
            return
        async with subject.sandbox(driver) as first:
            await run(first, "echo 1 > changed && touch gone kept")
            async with _snapshot(driver, first) as taken:
                made = await driver.create_sandbox(subject.request(new_id(), snapshot_id=taken.snapshot_id))
            copy = made.sandbox
            try:
                await _try_changes(first, copy)
            finally:
                await driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=copy.sandbox_id))


async def _try_changes(first: pb.RuntimeSandbox, copy: pb.RuntimeSandbox) -> None:
    none = await carry(copy, "fs.list_changes", {})
    expect(none.result.is_error, "changes of a sandbox that is not a branch are listed")
    await carry(copy, "fs.begin_branch", {"base": first.sandbox_id})
    expect_equal((await run(copy, _CHANGE)).exit_code, 0, "changing the copy")
    patch = (await carry(copy, "fs.pack_changes", {})).data
    await run(first, "echo 3 > changed")
    refused = await carry(first, "fs.apply_changes", {}, patch)
    expect_equal(refused.facts, {"applied": 0, "conflicts": ["changed"], "count": 1}, "what the conflict names")
    expect_equal((await run(first, "cat changed; ls -A")).stdout, "3\nchanged\ngone\nkept\n", "the first afterwards")
    cut = await carry(first, "fs.apply_changes", {"force": True}, patch[:-2000])
    expect(cut.result.is_error, "a patch that was cut short is applied")
    applied = await carry(first, "fs.apply_changes", {"force": True}, patch)
    expect_equal(applied.facts, {"applied": 4, "conflicts": [], "count": 0}, "what was applied")
    expect_equal((await run(first, _CHANGED)).stdout, (await run(copy, _CHANGED)).stdout, "what the first has then")

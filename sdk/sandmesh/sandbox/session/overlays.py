"""Overlays: sandboxes that begin with another one's files, and whose changes can be committed to it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sandmesh._calls.call import Order
from sandmesh._calls.short_call import read_facts
from sandmesh._files.calls import FileCalls
from sandmesh.errors import SandmeshError, WrongState
from sandmesh.results import FileDifference, Listing
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.handle import Attachment, BoxConfig, attach, get_record
from sandmesh.sandbox.session.forks import spec_of_fork, take_files


async def attach_overlay(base: SandboxAsync, config: BoxConfig, origin: Attachment) -> Attachment:
    """Create a sandbox with the files of `base`, and hold their state there.

    Raises:
        SandmeshError: It could not be created; no sandbox is left behind.
    """
    spec = spec_of_fork(config, origin.record)
    snapshot_id = await take_files(base, origin, config.timeout)
    try:
        spec.snapshot_id = snapshot_id
        made = await attach(replace(config, sandbox_id=None, spec=spec))
    finally:
        # A snapshot that cannot be deleted now stays in the list of snapshots.
        with suppress(SandmeshError):
            await asyncio.shield(base.delete_snapshot(snapshot_id))
    try:
        await _calls(made, made.record.sandbox_id, config.timeout).ask(
            "fs.begin_branch", {"base": origin.record.sandbox_id}
        )
    except BaseException:
        await asyncio.shield(made.close(config.timeout))
        raise
    return made


async def read_changes(
    attachment: Attachment, timeout: float, *, packed: bool = False
) -> tuple[str, list[FileDifference]]:
    """Return the sandbox that an overlay is of, and the overlay's changes; with `packed` what was last packed of them.

    Raises:
        WrongState: It is not an overlay.
    """
    calls = _calls(attachment, attachment.record.sandbox_id, timeout)
    try:
        first, *lines = (await calls.output("fs.list_changes", {"packed": True} if packed else {})).splitlines()
    except OSError as error:
        raise _not_an_overlay(attachment, error) from None
    return str(read_facts(first)["base"]), Listing(FileDifference(**read_facts(line)) for line in lines)


async def commit_changes(attachment: Attachment, timeout: float, *, force: bool) -> list[FileDifference]:
    """Apply an overlay's changes to the sandbox that it is of, and return them; changes count from there on.

    Raises:
        WrongState: It is not an overlay, or the other sandbox has changed in the same places.
        SandmeshError: The other sandbox is gone.
    """
    base, _ = await read_changes(attachment, timeout, packed=True)
    record = await get_record(attachment.usable(), base, timeout)
    origin = replace(attachment, record=record, owned=None)
    calls = _calls(attachment, attachment.record.sandbox_id, timeout)
    patch: AsyncIterator[bytes] = calls.receive("fs.pack_changes", {})
    answer = await _calls(origin, base, timeout).send("fs.apply_changes", {"force": force}, patch)
    if answer["conflicts"]:
        raise _conflict(base, answer)
    _, changes = await read_changes(attachment, timeout, packed=True)
    await calls.ask("fs.begin_branch", {"packed": True})
    return changes


def _conflict(base: str, answer: dict[str, Any]) -> WrongState:
    named = ", ".join(answer["conflicts"][:5]) + (", ..." if answer["count"] > 5 else "")
    message = (
        f"sandbox {base} has changed in {answer['count']} of the same places since the overlay was made: {named}. "
        "Nothing was committed; commit(force=True) replaces what is there"
    )
    facts = {"state": "CONFLICT", "paths": "\n".join(answer["conflicts"]), "count": str(answer["count"])}
    return WrongState(message, facts)


def _not_an_overlay(attachment: Attachment, error: OSError) -> SandmeshError | OSError:
    if error.errno != errno.ENODATA:
        return error
    sandbox_id = attachment.record.sandbox_id
    message = f"{sandbox_id} is not an overlay, or was paused without its memory: box.overlay() makes one"
    return WrongState(message, {"state": "NOT_AN_OVERLAY", "sandbox_id": sandbox_id})


def _calls(attachment: Attachment, sandbox_id: str, timeout: float) -> FileCalls:
    token = attachment.record.lease.fencing_token

    def order(tool: str, arguments: bytes) -> Order:
        return Order(sandbox_id, token, tool, arguments, timeout)

    return FileCalls(order, attachment.usable)

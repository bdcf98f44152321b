"""Ownership of sandboxes: a session's key begins with its user's. Those of other owners appear not to exist."""

from __future__ import annotations

from sandmesh.errors import SandboxNotFound
from sandmeshd.allocator.records.record_store import RecordStore
from sandmeshd.allocator.records.records import RecordState
from sandmeshd.auth.principal import current_principal


async def check_owned(records: RecordStore, sandbox_id: str) -> None:
    """Check that the principal owns a sandbox; it never passes to another session, so that holds from then on.

    Only users are checked: services and administrators cost no round trip.

    Raises:
        SandboxNotFound: It does not exist, or has another owner.
    """
    if not await _is_owned(records, sandbox_id):
        raise not_found(sandbox_id)


async def check_owned_or_gone(records: RecordStore, sandbox_id: str) -> None:
    """Check that the principal owns a sandbox, or that it was deleted recently.

    Raises:
        SandboxNotFound: It does not exist, or has another owner.
    """
    if not await _is_owned(records, sandbox_id, gone=True):
        raise not_found(sandbox_id)


async def _is_owned(records: RecordStore, sandbox_id: str, gone: bool = False) -> bool:
    caller = current_principal()
    if caller.scope != "user":
        return True
    record = await records.read(sandbox_id)
    if record is None:
        return gone and await records.was_deleted(sandbox_id)
    return is_owned(record)


def is_owned(record: RecordState) -> bool:
    """Return whether a sandbox is the principal's."""
    return current_principal().owns(record.shown("session"), record.sandbox_id, record.shown("project"))


def not_found(sandbox_id: str) -> SandboxNotFound:
    """Return the error of a sandbox that does not exist."""
    return SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})

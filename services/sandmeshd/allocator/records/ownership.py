"""Whose a sandbox is: its session's key begins with its user's. Another's is answered as if there were none."""

from __future__ import annotations

from sandmesh.errors import SandboxNotFound
from sandmeshd.allocator.records.ledger import Ledger
from sandmeshd.auth.principal import current_caller


async def check_owned(ledger: Ledger, sandbox_id: str) -> None:
    """Check that a sandbox is the caller's; a sandbox never passes to another session, so that holds from then on.

    Only a user is asked for: services and administrators cost no round trip.

    Raises:
        SandboxNotFound: There is none, or it is another's.
    """
    if not await _is_owned(ledger, sandbox_id):
        raise not_found(sandbox_id)


async def check_owned_or_gone(ledger: Ledger, sandbox_id: str) -> None:
    """Check that a sandbox is the caller's, or was deleted not too long ago.

    Raises:
        SandboxNotFound: There is none, or it is another's.
    """
    if not await _is_owned(ledger, sandbox_id, gone=True):
        raise not_found(sandbox_id)


async def _is_owned(ledger: Ledger, sandbox_id: str, gone: bool = False) -> bool:
    caller = current_caller()
    if caller.scope != "user":
        return True
    record = await ledger.read(sandbox_id)
    if record is None:
        return gone and await ledger.is_buried(sandbox_id)
    return caller.owns(record.text("session"))


def not_found(sandbox_id: str) -> SandboxNotFound:
    """Say that there is no such sandbox."""
    return SandboxNotFound(f"there is no sandbox {sandbox_id}", {"sandbox_id": sandbox_id})

"""Events of sandboxes as E2B's clients know them.

https://e2b.dev/docs/sandbox/lifecycle-events-api, https://e2b.dev/docs/sandbox/lifecycle-events-webhooks
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Any, Final

from sandmesh.mesh import SandboxEvent, SandboxInfo
from sandmeshd.facades.e2b.control.views import write_time
from sandmeshd.facades.e2b.identities import public_id
from sandmeshd.facades.e2b.marks import read_marks
from sandmeshd.facades.webhooks.hooks import Hook

FORM: Final = "e2b"
_PREFIX: Final = "sandbox.lifecycle."
# A sandbox that was lost stops too, so that each has one end.
TYPES: Final = {
    "leased": f"{_PREFIX}created",
    "renewed": f"{_PREFIX}updated",
    "paused": f"{_PREFIX}paused",
    "resumed": f"{_PREFIX}resumed",
    "stopping": f"{_PREFIX}killed",
}
"""The types by the mesh's kinds of events."""
_IDS: Final = uuid.UUID("0c3f1f0e-4a5e-4d0e-9a55-0f6a6f1d9c6b")


def view(event: SandboxEvent, info: SandboxInfo | None) -> dict[str, Any]:
    """Return an event of a kind in `TYPES`; without `info` its template and metadata are not known any more."""
    marks = None if info is None else read_marks(info.labels)
    template = marks.template if marks is not None else "" if info is None else info.template
    data: dict[str, Any] = {}
    if event.kind == "leased" and marks is not None and marks.metadata:
        data["sandbox_metadata"] = marks.metadata
    if event.kind == "stopping" and event.reason:
        data["reason"] = event.reason
    return {
        "version": "v1",
        "id": _id(f"event {event.event_id} {event.sandbox_id}"),
        "type": TYPES[event.kind],
        "eventData": data or None,
        "sandboxBuildId": _id(f"template {template}"),
        "sandboxExecutionId": _id(f"sandbox {event.sandbox_id}"),
        "sandboxId": public_id(event.sandbox_id),
        "sandboxTeamId": team_of(event.user_id),
        "sandboxTemplateId": template,
        "timestamp": write_time(event.time),
    }


def team_of(owner: str) -> str:
    """Return what stands for a team: each user is one."""
    return _id(f"team {owner}")


def _id(text: str) -> str:
    """Return the UUID of a text: an event that is sent twice has the same."""
    return str(uuid.uuid5(_IDS, text))


class E2bLetters:
    """The requests of E2B's webhooks."""

    def letter(self, event: SandboxEvent, info: SandboxInfo | None) -> dict[str, Any]:
        """Return an event."""
        return view(event, info)

    def headers(self, hook: Hook, letter: dict[str, Any], body: bytes) -> dict[str, str]:
        """Return the headers, with a signature as E2B publishes it: a hash of the secret and the body."""
        digest = hashlib.sha256(hook.secret.encode() + body).digest()
        return {
            "Content-Type": "application/json",
            "e2b-webhook-id": hook.name,
            "e2b-delivery-id": str(uuid.uuid4()),
            "e2b-signature-version": "v1",
            "e2b-signature": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        }

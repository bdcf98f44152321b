"""Records of the mesh as the console's pages get them."""

from __future__ import annotations

from typing import Any, Final

from sandmesh.files import FileInfo
from sandmesh.mesh import PrincipalInfo, SandboxEvent, SandboxInfo
from sandmeshd.facades.console.sessions import Session

_MOST_TEXT: Final = 2_000


def sandbox_row(info: SandboxInfo) -> dict[str, Any]:
    """Return a sandbox as a row of the list; times are milliseconds since 1970."""
    return {
        "id": info.sandbox_id,
        "template": info.template,
        "image": info.image,
        "state": info.state,
        "reason": info.state_reason[:_MOST_TEXT],
        "created": milliseconds(info.created.timestamp()),
        "expires": None if info.lease is None else milliseconds(info.lease.expires.timestamp()),
        "in_use": info.in_use,
        "user": info.user_id,
        "session": info.session_key,
        "node": info.node_id,
        "driver": info.driver,
        "labels": dict(info.labels),
        "parent": info.snapshot_of,
    }


def event_row(event: SandboxEvent) -> dict[str, Any]:
    """Return an event as a row of a timeline."""
    return {
        "id": event.event_id,
        "sandbox": event.sandbox_id,
        "time": milliseconds(event.time.timestamp()),
        "kind": event.kind,
        "reason": event.reason[:_MOST_TEXT],
        "actor": event.actor,
        "fault": event.fault,
        "phases": [[name, round(seconds * 1000, 1)] for name, seconds in event.phases.items()],
    }


def file_row(info: FileInfo) -> dict[str, Any]:
    """Return a directory's entry. A name that is not text cannot be opened by the console."""
    name = info.path
    return {
        "name": name.encode(errors="backslashreplace").decode(),
        "text": name.isprintable() and not any("\ud800" <= character <= "\udfff" for character in name),
        "type": info.type,
        "size": info.size,
        "modified": milliseconds(info.mtime_ns / 1e9),
        "target": (info.target or "").encode(errors="backslashreplace").decode(),
    }


def session_row(session: Session) -> dict[str, Any]:
    """Return who has the console open, and what they may do."""
    principal: PrincipalInfo = session.principal
    return {
        "scope": principal.scope,
        "user": principal.user_id,
        "project": principal.project,
        "sandbox": principal.sandbox_id,
        "read_only": session.read_only,
        "shares": not session.only_shows,
        "address": session.address,
        "seconds_left": round(session.seconds_left),
    }


def milliseconds(seconds: float) -> int:
    """Return a time as the pages have it."""
    return round(seconds * 1000)

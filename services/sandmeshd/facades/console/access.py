"""Tokens, quotas, usage and the audit, for whose token may see them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from sandmesh.mesh import AuditEntry, QuotaInfo, TokenInfo, Usage
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.bodies import read_object
from sandmeshd.facades.console.older import available
from sandmeshd.facades.console.records import milliseconds
from sandmeshd.facades.console.sessions import Session

_ENTRIES: Final = 200
_MOST_TEXT: Final = 500
_SCOPES: Final = ("user", "read-only", "admin", "project-admin")
_LONGEST_TTL: Final = 10 * 366 * 24 * 3600


async def show(_: web.Request, session: Session) -> web.Response:
    """Return what there is: null for each that the token does not show, or that the mesh does not have."""
    mesh, missing = session.mesh, list[str]()
    tokens, quotas, usage, audit = await asyncio.gather(
        available(mesh.tokens.list(), "tokens", missing),
        available(mesh.quotas.list(), "quotas", missing),
        available(mesh.usage.list(limit=1), "usage", missing),
        available(mesh.audit.list(limit=_ENTRIES), "audit", missing),
    )
    rows: dict[str, Any] = {
        "tokens": None if tokens is None else [_token_row(one) for one in tokens],
        "quotas": None if quotas is None else [_quota_row(one) for one in quotas],
        "usage": None if usage is None else [_usage_row(one) for one in usage.projects],
        "audit": None if audit is None else [_audit_row(one) for one in reversed(audit)],
    }
    return web.json_response({**rows, "missing": missing})


async def create_token(request: web.Request, session: Session) -> web.Response:
    """Create a token, and return its secret this once."""
    fields = await read_object(request)
    name, scope, of = (_text(fields, field) for field in ("name", "scope", "of"))
    ttl = fields.get("seconds")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int) or not 0 < ttl <= _LONGEST_TTL):
        raise RequestError(400, "seconds is a whole number above 0, or null for a token that does not expire")
    tokens = session.mesh.tokens
    match scope:
        case "project-admin":
            created = await tokens.create_for_project(name, of, ttl=ttl)
        case "user" | "read-only" | "admin":
            created = await tokens.create(name, scope=scope, user_id=of or None, ttl=ttl)
        case _:
            raise RequestError(400, f"scope is one of {', '.join(_SCOPES)}")
    return web.json_response({"token": _token_row(created.token), "secret": created.secret})


async def revoke_token(request: web.Request, session: Session) -> web.Response:
    """Revoke a token."""
    return web.json_response(_token_row(await session.mesh.tokens.revoke(request.match_info["token"])))


async def set_quota(request: web.Request, session: Session) -> web.Response:
    """Change one limit of a project or a user; null removes it."""
    fields = await read_object(request)
    value = fields.get("value")
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise RequestError(400, "value is a number, a size such as 4GiB, or null for no limit")
    limits = {_text(fields, "limit"): value}
    owner = {"project": _text(fields, "project"), "user_id": _text(fields, "user")}
    return web.json_response(_quota_row(await session.mesh.quotas.set(limits, **owner)))


def _text(fields: Mapping[str, Any], name: str) -> str:
    value: object = fields.get(name) or ""
    if not isinstance(value, str):
        raise RequestError(400, f"{name} is a text")
    return value.strip()


def _token_row(token: TokenInfo) -> dict[str, Any]:
    times = {"created": token.created, "expires": token.expires, "used": token.last_used}
    return {
        "id": token.token_id,
        "name": token.name,
        "scope": token.scope,
        "of": token.user_id or token.project or token.sandbox_id,
        **{name: None if time is None else milliseconds(time.timestamp()) for name, time in times.items()},
    }


def _quota_row(quota: QuotaInfo) -> dict[str, Any]:
    return {
        "project": quota.project,
        "user": quota.user_id,
        "limits": dict(quota.limits),
        "use": dict(quota.use),
        "users": len(quota.user_ids),
    }


def _usage_row(usage: Usage) -> dict[str, Any]:
    return {
        "project": usage.project,
        "hours": usage.sandbox_seconds / 3600,
        "cpu_hours": usage.cpu_seconds / 3600,
        "memory_gib_hours": usage.memory_byte_seconds / 3600 / (1 << 30),
        "egress_bytes": usage.egress_bytes,
        "cost": usage.cost,
    }


def _audit_row(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": entry.entry_id,
        "time": milliseconds(entry.time.timestamp()),
        "who": entry.user_id or entry.scope,
        "token": entry.token_id,
        "peer": entry.peer,
        "method": entry.method,
        "outcome": entry.outcome,
        "sandboxes": list(entry.sandbox_ids[:8]),
        "details": {name: value[:_MOST_TEXT] for name, value in entry.details.items()},
    }

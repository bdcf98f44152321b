"""Failures as SWE-ReX's client raises them again: status 511, and the class by its path."""

from __future__ import annotations

from typing import Any

from aiohttp import web

_RAISED = 511


class GuestError(Exception):
    """What failed in the sandbox: the class that the client raises, its message, and what else it is to know."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.class_path = str(described.get("class_path") or "builtins.RuntimeError")
        self.message = str(described.get("message") or "")
        extra: object = described.get("extra_info")
        self.extra: object = extra if isinstance(extra, dict) else {}
        super().__init__(self.message)

    def response(self) -> web.Response:
        """Return it as a response."""
        return _raised(self.class_path, self.message, self.extra)


class RuntimeEnded(Exception):
    """The program in the sandbox has ended, and the shells with it."""

    def response(self) -> web.Response:
        """Return it as a response."""
        return lost("the program of this door in the sandbox has ended, and its sessions: create them again")


def lost(message: str) -> web.Response:
    """Return that a sandbox, or what runs in it, is there no more."""
    return _raised("swerex.exceptions.SwerexException", message, {})


def _raised(class_path: str, message: str, extra: object) -> web.Response:
    described = {"message": message, "class_path": class_path, "traceback": "", "extra_info": extra}
    return web.json_response({"swerexception": described}, status=_RAISED)

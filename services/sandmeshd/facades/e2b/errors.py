"""Failures as E2B's clients read them: statuses of HTTP, codes of Connect, and what a proxy without a sandbox says."""

from __future__ import annotations

import errno
import math
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from sandmesh import errors
from sandmesh.errors import SandmeshError

_STATUSES: Final[tuple[tuple[type[SandmeshError], int], ...]] = (
    (errors.Unauthenticated, 401),
    (errors.Denied, 403),
    (errors.NotFound, 404),
    (errors.InvalidArgument, 400),
    (errors.CapabilityMissing, 400),
    (errors.AlreadyExists, 409),
    (errors.TooLarge, 413),
    (errors.Exhausted, 429),
    (errors.Refused, 409),
    (errors.Unavailable, 503),
    (errors.DeadlineExceeded, 504),
)
_CODES: Final = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    409: "already_exists",
    413: "resource_exhausted",
    429: "resource_exhausted",
    499: "canceled",
    501: "unimplemented",
    503: "unavailable",
    504: "deadline_exceeded",
    507: "resource_exhausted",
}
_OS_STATUSES: Final = {errno.ENOENT: 404, errno.ENOSPC: 507, errno.EDQUOT: 507, errno.EEXIST: 409}


class ApiError(Exception):
    """A refusal, with the status of HTTP that says its kind."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After` in whole seconds, where a later request may succeed."""
        return {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}

    @property
    def connect_error(self) -> dict[str, str]:
        """The error as the Connect protocol writes it."""
        return {"code": _CODES.get(self.status, "internal"), "message": self.message}

    def response(self) -> web.Response:
        """Return the error as the control plane writes it."""
        content = {"code": self.status, "message": self.message}
        return web.json_response(content, status=self.status, headers=self.headers)


class SandboxGone(Exception):
    """There is no such sandbox, or it has ended: clients expect what E2B's proxy says then."""

    def __init__(self, public_id: str) -> None:
        super().__init__(public_id)
        self.public_id = public_id

    def response(self) -> web.Response:
        """Return what says so; clients look for this text."""
        return proxy_failure({"sandboxId": self.public_id, "message": "The sandbox was not found"})


def proxy_failure(facts: dict[str, Any]) -> web.Response:
    """Return the failure of a request on its way to a sandbox."""
    return web.json_response({**facts, "code": HTTPStatus.BAD_GATEWAY.value}, status=HTTPStatus.BAD_GATEWAY)


def api_error(error: SandmeshError) -> ApiError:
    """Convert an error of the mesh."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return ApiError(status, error.message, retry_after=error.retry_after)


def os_error(error: OSError, path: str) -> ApiError:
    """Convert what a sandbox's system refused about a path."""
    if error.errno == errno.ENOENT:
        return ApiError(404, f"path '{path}' does not exist")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ApiError(507, "not enough disk space available")
    return ApiError(_OS_STATUSES.get(error.errno or 0, 400), f"{path}: {error.strerror or error}")

"""Failures as clients of several doors read them: a status of HTTP, and `detail`."""

from __future__ import annotations

import math
from typing import Final

from aiohttp import web

from sandmesh import errors
from sandmesh.errors import SandmeshError

_STATUSES: Final[tuple[tuple[type[SandmeshError], int], ...]] = (
    (errors.Unauthenticated, 401),
    (errors.Denied, 403),
    (errors.NotFound, 404),
    (errors.SandboxLost, 404),
    (errors.InvalidArgument, 400),
    (errors.CapabilityMissing, 400),
    (errors.TooLarge, 413),
    (errors.Exhausted, 429),
    (errors.AlreadyExists, 409),
    (errors.Refused, 409),
    (errors.Unavailable, 503),
    (errors.DeadlineExceeded, 504),
)


class RequestError(Exception):
    """A refusal, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def response_of(error: Exception) -> web.Response:
    """Return a failure as a response.

    Raises:
        Exception: It is none that clients are told of.
    """
    match error:
        case RequestError():
            status, message = error.status, error.message
        case SandmeshError():
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
            message = error.message
        case FileNotFoundError():
            status, message = 404, f"{error.filename or error}: it does not exist"
        case OSError():
            status, message = 400, f"{error.filename or ''}: {error.strerror or error}".removeprefix(": ")
        case _:
            raise error
    after = error.retry_after if isinstance(error, SandmeshError) else None
    headers = {} if after is None else {"Retry-After": str(max(1, math.ceil(after)))}
    return web.json_response({"detail": message}, status=status, headers=headers)

"""Errors over gRPC, encoded and decoded: a status with a google.rpc.ErrorInfo in `grpc-status-details-bin`.

The format is that of https://google.aip.dev/193: reason, domain "sandmesh", metadata; a RetryInfo if there is a delay.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from sandmesh import errors

DOMAIN = "sandmesh"
DETAILS = "grpc-status-details-bin"

_CODES: dict[type[errors.SandmeshError], grpc.StatusCode] = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.MethodNotFound: grpc.StatusCode.UNIMPLEMENTED,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.RuntimeUnavailable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TemplateBuildFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Refused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.Cancelled: grpc.StatusCode.CANCELLED,
    errors.Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.WorkspaceDirRefused: grpc.StatusCode.PERMISSION_DENIED,
}

_BARE: dict[grpc.StatusCode, type[errors.SandmeshError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.MeshUnavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.CANCELLED: errors.MeshUnavailable,
    grpc.StatusCode.UNIMPLEMENTED: errors.MethodNotFound,
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.TooLarge,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
}

_DROPPED = "the server dropped the request: it is shutting down, or has more requests than it accepts"
"""What CANCELLED means of a request that its caller did not cancel."""
_SLOW = (
    "the mesh did not answer within the request's time limit: `sandmesh doctor --mesh` says which part of it is slow "
    "or does not answer, else give the request more time"
)
_BARE_MESSAGES = {grpc.StatusCode.CANCELLED: _DROPPED, grpc.StatusCode.DEADLINE_EXCEEDED: _SLOW}
"""What is said in the place of gRPC's own words."""

_REFUSALS = frozenset(
    {
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)
"""The codes of requests that were refused before anything was done; RESOURCE_EXHAUSTED may concern the response."""
_NEVER_CONNECTED = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")
"""How gRPC's messages begin if no connection was established; any other UNAVAILABLE request may have been sent."""


def code_of(error: errors.SandmeshError) -> grpc.StatusCode:
    """Return the gRPC code of an exception."""
    for cls, code in _CODES.items():
        if isinstance(error, cls):
            return code
    return grpc.StatusCode.INTERNAL


def to_trailers(error: errors.SandmeshError) -> tuple[tuple[str, str | bytes], ...]:
    """Encode an exception as the trailing metadata that accompanies its code and message."""
    facts = {**error.facts, "changed": str(error.changed).lower()}
    details = [_any(error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=facts))]
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(error.retry_after * 1e9))
        details.append(_any(retry))
    code: tuple[int, str] = code_of(error).value
    status = status_pb2.Status(code=code[0], message=error.message, details=details)
    return ((DETAILS, status.SerializeToString()),)


def _any(message: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def from_rpc_error(error: grpc.aio.AioRpcError) -> errors.SandmeshError:
    """Decode the exception of a failed RPC; one that no service of ours sent is derived from its code."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS and isinstance(value, bytes):
            found = _from_status(status_pb2.Status.FromString(value))
            if found is not None:
                return found
    cls = _BARE.get(error.code(), errors.InternalError)
    message = _BARE_MESSAGES.get(error.code()) or error.details() or error.code().name
    return cls(message, {"grpc_code": error.code().name}, changed=_may_have_changed(error.code(), message))


def _may_have_changed(code: grpc.StatusCode, message: str) -> bool:
    """Return whether an RPC that failed without a response of a service may have been executed."""
    if code == grpc.StatusCode.UNAVAILABLE:
        return not message.startswith(_NEVER_CONNECTED)
    return code not in _REFUSALS


def _from_status(status: status_pb2.Status) -> errors.SandmeshError | None:
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    found = any(detail.Unpack(info) for detail in status.details)
    if not found or info.domain != DOMAIN:
        return None
    delayed = any(detail.Unpack(retry) for detail in status.details)
    facts = dict(info.metadata)
    changed = facts.pop("changed", "false") == "true"
    cls = errors.CLASSES.get(info.reason, errors.SandmeshError)
    delay = retry.retry_delay.ToNanoseconds() / 1e9 if delayed else None
    return cls(status.message, facts, changed=changed, retry_after=delay)


@contextmanager
def translated() -> Generator[None]:
    """Raise the decoded exception of an RPC that fails inside the block, instead of grpc's own."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None

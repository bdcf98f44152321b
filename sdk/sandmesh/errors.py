"""The exceptions of the mesh.

A failure of a tool or of the user's own code is never raised: it is a result with `is_error`.

    SandmeshError
    ├── InvalidArgument (ValueError)
    ├── NotFound (LookupError)
    │   ├── TemplateNotFound   ├── SandboxNotFound   ├── SessionNotFound
    │   ├── ToolNotFound       ├── CallNotFound      ├── MethodNotFound
    │   ├── TokenNotFound      ├── SecretNotFound    └── SnapshotNotFound
    ├── AlreadyExists
    ├── Refused
    │   ├── CapabilityMissing  ├── LeaseLost         ├── WrongState
    │   ├── CallExpired        ├── CallFinished      ├── ProtocolMismatch
    │   ├── WorkspaceNotReady  └── SnapshotDamaged
    ├── Exhausted
    │   ├── PoolExhausted      ├── QuotaExceeded     └── TooLarge
    ├── Unavailable
    │   ├── MeshUnavailable    ├── StoreUnavailable  ├── RuntimeUnavailable
    │   ├── SandboxLost        ├── SandboxStartFailed
    │   ├── TemplateBuildFailed ├── Recovering       └── StorageUnavailable
    ├── DeadlineExceeded (TimeoutError)
    ├── Cancelled
    ├── Denied (PermissionError)
    │   ├── Unauthenticated    ├── PermissionDenied
    │   └── WorkspaceDirRefused
    └── InternalError

Names and meanings are those of sandmesh.api.errors.v1.ErrorReason; a caller gets the same class with the same facts,
wherever it was raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from sandmesh.api.errors.v1 import errors_pb2

Fault: TypeAlias = Literal["task", "infra", "limit"]
"""Whose fault a failure is: the caller's request or code, the mesh with its nodes and runtimes, or a limit's."""

# How a driver or the mesh describes the end of a sandbox at one of its limits; all other ends are the mesh's.
_LIMIT_ENDS = ("out of memory", "ran out of the memory", "its lease ran out")


def fault_of_end(detail: str) -> Fault:
    """Return whose fault the end of a sandbox is, by the detail that its driver or the mesh recorded."""
    return "limit" if any(end in detail for end in _LIMIT_ENDS) else "infra"


class SandmeshError(Exception):
    """The base of all errors of the mesh.

    `message` says what happened and what to do, `facts` has names and values as the reason documents them, `changed`
    whether the mesh was changed (also True if that is unknown, because a response was lost), `retryable` whether the
    same request may succeed later, `retry_after` when (seconds).
    """

    reason: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    blames: ClassVar[Fault] = "infra"
    """Whose fault an error of this class is, unless its facts say otherwise."""

    def __init__(
        self,
        message: str = "",
        facts: Mapping[str, str] | None = None,
        *,
        changed: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.facts = dict(facts or {})
        self.changed = changed
        self.retry_after = retry_after

    @property
    def fault(self) -> Fault:
        """Whose fault it is, so that a trainer can leave out what its policy did not cause.

        "task": the request or the code that it ran; "limit": a quota, a time or a size; "infra": everything else, also
        where it cannot be known.
        """
        return self.blames

    def __reduce__(self) -> tuple[object, ...]:
        """Keep every field when pickled, as process pools do."""
        return _rebuild, (type(self), self.message, self.facts, self.changed, self.retry_after)


def _rebuild(
    cls: type[SandmeshError], message: str, facts: dict[str, str], changed: bool, retry_after: float | None
) -> SandmeshError:
    return cls(message, facts, changed=changed, retry_after=retry_after)


class InvalidArgument(SandmeshError, ValueError):
    """A field is missing, of the wrong type or out of range; nothing changed."""

    reason = "INVALID_ARGUMENT"
    blames = "task"


class NotFound(SandmeshError, LookupError):
    """It does not exist, or is not the caller's."""

    def __str__(self) -> str:
        """Return the message without the quotes that a LookupError might add."""
        return self.message


class TemplateNotFound(NotFound):
    """No such template; `facts["known"]` lists those there are."""

    reason = "TEMPLATE_NOT_FOUND"
    blames = "task"


class SandboxNotFound(NotFound):
    """No such sandbox, or not the caller's."""

    reason = "SANDBOX_NOT_FOUND"


class SessionNotFound(NotFound):
    """No such session, or not the caller's."""

    reason = "SESSION_NOT_FOUND"


class ToolNotFound(NotFound):
    """The sandbox has no tool of that name; `facts["known"]` lists those it has."""

    reason = "TOOL_NOT_FOUND"
    blames = "task"


class CallNotFound(NotFound):
    """No call of that id is known in the sandbox."""

    reason = "CALL_NOT_FOUND"


class MethodNotFound(NotFound):
    """The mesh does not implement that method."""

    reason = "METHOD_NOT_FOUND"
    blames = "task"


class TokenNotFound(NotFound):
    """No such token."""

    reason = "TOKEN_NOT_FOUND"
    blames = "task"


class SecretNotFound(NotFound):
    """No such secret, or not the caller's."""

    reason = "SECRET_NOT_FOUND"
    blames = "task"


class SnapshotNotFound(NotFound):
    """No such snapshot, or not the caller's."""

    reason = "SNAPSHOT_NOT_FOUND"
    blames = "task"


class AlreadyExists(SandmeshError):
    """The id is in use with other parameters."""

    reason = "ALREADY_EXISTS"
    blames = "task"


class Refused(SandmeshError):
    """The request does not fit the current state."""


class CapabilityMissing(Refused):
    """The runtime cannot enforce or do what was requested; `facts["needs"]` says what."""

    reason = "CAPABILITY_MISSING"
    blames = "task"


class LeaseLost(Refused):
    """The fencing token is not the current one: the lease expired or passed to another holder."""

    reason = "LEASE_LOST"


class WrongState(Refused):
    """The record's state does not allow the change; `facts["state"]` is the state."""

    reason = "WRONG_STATE"


class CallExpired(Refused):
    """The call finished and its log is no longer kept; it is not run again."""

    reason = "CALL_EXPIRED"


class CallFinished(Refused):
    """The call has finished: it takes no input, signal or resize."""

    reason = "CALL_FINISHED"
    blames = "task"


class ProtocolMismatch(Refused):
    """The agent's protocol versions and the mesh's do not overlap."""

    reason = "PROTOCOL_MISMATCH"


class WorkspaceNotReady(Refused):
    """A session's saved workspace is not trustworthy, or that of its last sandbox is not saved yet."""

    reason = "WORKSPACE_NOT_READY"


class SnapshotDamaged(Refused):
    """The stored snapshot is not the one that was taken; `facts["detail"]` says how. No sandbox started from it."""

    reason = "SNAPSHOT_DAMAGED"


class Exhausted(SandmeshError):
    """A configured limit would be exceeded."""


class PoolExhausted(Exhausted):
    """Every sandbox that the limits allow is in use, and the deadline passed in the queue."""

    reason = "POOL_EXHAUSTED"
    retryable = True
    blames = "limit"


class QuotaExceeded(Exhausted):
    """A quota of the user or of the user's project is reached; `facts` has `quota`, `used`, `requested` and `limit`."""

    reason = "QUOTA_EXCEEDED"
    retryable = True
    blames = "limit"


class TooLarge(Exhausted):
    """The data is larger than a message may be; the files API has no such limit."""

    reason = "TOO_LARGE"
    blames = "limit"


class Unavailable(SandmeshError):
    """Something that the request needs does not respond."""


class MeshUnavailable(Unavailable):
    """Nothing responds at the mesh's address."""

    reason = "MESH_UNAVAILABLE"
    retryable = True


class StoreUnavailable(Unavailable):
    """The store does not respond."""

    reason = "STORE_UNAVAILABLE"
    retryable = True


class RuntimeUnavailable(Unavailable):
    """The runtime cannot work on this machine; `facts["fix"]` says what to install or enable."""

    reason = "RUNTIME_UNAVAILABLE"


class SandboxLost(Unavailable):
    """The sandbox is gone; `facts["detail"]` says how it ended."""

    reason = "SANDBOX_LOST"

    @property
    def fault(self) -> Fault:
        """Whose fault it is: "limit" if the sandbox ended at one, of its memory or its lease, else "infra"."""
        return fault_of_end(self.facts.get("detail", ""))


class SandboxStartFailed(Unavailable):
    """The sandbox could not be started; `facts["detail"]` has its last output."""

    reason = "SANDBOX_START_FAILED"
    retryable = True


class TemplateBuildFailed(Unavailable):
    """The template's environment could not be built; `facts["detail"]` has the builder's last output."""

    reason = "TEMPLATE_BUILD_FAILED"


class Recovering(Unavailable):
    """Records are being rebuilt after the store came back empty."""

    reason = "RECOVERING"
    retryable = True


class StorageUnavailable(Unavailable):
    """The workspace storage does not respond, or refuses; `facts["detail"]` has its message."""

    reason = "STORAGE_UNAVAILABLE"
    retryable = True


class DeadlineExceeded(SandmeshError, TimeoutError):
    """The caller's deadline passed; `changed` says whether anything was or may have been changed."""

    reason = "DEADLINE_EXCEEDED"
    retryable = True
    blames = "limit"


class Cancelled(SandmeshError):
    """The caller cancelled the request or disconnected."""

    reason = "CANCELLED"


class Denied(SandmeshError, PermissionError):
    """The caller may not do this."""


class Unauthenticated(Denied):
    """The token is missing or not valid; `facts["token"]` is missing, invalid, expired, revoked or limited."""

    reason = "UNAUTHENTICATED"


class PermissionDenied(Denied):
    """The token does not permit it."""

    reason = "PERMISSION_DENIED"
    blames = "task"


class WorkspaceDirRefused(Denied):
    """The directory must not be a sandbox's workspace; `facts["path"]` is its real path, `facts["fix"]` what to do."""

    reason = "WORKSPACE_DIR_REFUSED"
    blames = "task"


class InternalError(SandmeshError):
    """A defect of the mesh; `facts["error_id"]` identifies it in the service's log."""

    reason = "INTERNAL"


def _leaves(cls: type[SandmeshError]) -> list[type[SandmeshError]]:
    below = [leaf for sub in cls.__subclasses__() for leaf in _leaves(sub)]
    return below or [cls]


CLASSES: dict[str, type[SandmeshError]] = {cls.reason: cls for cls in _leaves(SandmeshError)}


def to_detail(error: SandmeshError) -> errors_pb2.ErrorDetail:
    """Convert an exception into the message that is sent inside a stream."""
    detail = errors_pb2.ErrorDetail(
        reason=errors_pb2.ErrorReason.Value(f"ERROR_REASON_{error.reason}"),
        message=error.message,
        metadata=error.facts,
        changed=error.changed,
        retryable=error.retryable,
    )
    if error.retry_after is not None:
        detail.retry_delay.FromNanoseconds(int(error.retry_after * 1e9))
    return detail


def from_detail(detail: errors_pb2.ErrorDetail) -> SandmeshError:
    """Convert a message of `to_detail` back into the exception; a reason of a newer mesh becomes SandmeshError."""
    try:
        name = errors_pb2.ErrorReason.Name(detail.reason).removeprefix("ERROR_REASON_")
    except ValueError:
        name = ""
    delay = detail.retry_delay.ToNanoseconds() / 1e9 if detail.HasField("retry_delay") else None
    cls = CLASSES.get(name, SandmeshError)
    return cls(detail.message, dict(detail.metadata), changed=detail.changed, retry_after=delay)

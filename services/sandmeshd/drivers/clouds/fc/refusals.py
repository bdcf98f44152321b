"""What Function Compute refuses requests with, as the mesh's errors: each with the vendor's code and request id."""

from __future__ import annotations

from typing import Any, Final

from sandmesh.errors import InternalError, InvalidArgument, PoolExhausted, RuntimeUnavailable, SandmeshError
from sandmeshd.drivers.clouds.fc.settings import FcSettings

NOT_FOUND, CONFLICT = 404, 409
THROTTLED: Final = (429, 503)
_QUOTA: Final = ("ResourceExhausted", "QuotaExceeded")

_FIXES: Final = {
    "InvalidAccessKeyID": "set SANDMESH_FC_ACCESS_KEY_ID to a key that exists and is enabled",
    "InvalidAccessKeyId.NotFound": "set SANDMESH_FC_ACCESS_KEY_ID to a key that exists and is enabled",
    "SignatureNotMatch": "set SANDMESH_FC_ACCESS_KEY_SECRET to the secret of that key",
    "SignatureDoesNotMatch": "set SANDMESH_FC_ACCESS_KEY_SECRET to the secret of that key",
    "InvalidTimeStamp.Expired": "set this machine's clock: requests are signed with its time",
    "RequestTimeTooSkewed": "set this machine's clock: requests are signed with its time",
    "AccessDenied": "grant the key's user the rights that docs/clouds.md lists",
    "InvalidSecurityToken.Expired": "renew SANDMESH_FC_SECURITY_TOKEN and the keys that belong to it",
}


class Refusal(Exception):
    """An answer of the API that is not a success, for callers that know what it means."""

    def __init__(self, status: int, code: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        """The vendor's words, with its request id."""
        self.retry_after = retry_after

    @classmethod
    def of(cls, error: Any) -> Refusal:
        """Return what the vendor's library raised."""
        data: dict[str, Any] = error.data or {}
        # The API has two shapes of errors.
        code = str(data.get("Code") or data.get("errorCode") or error.code or "")
        text = data.get("Message") or data.get("errorMessage") or error.message
        request_id = data.get("RequestId") or data.get("requestId") or error.request_id
        message = f"{code}: {text} (request {request_id})"
        return cls(int(error.status_code or 500), code, message, float(error.retry_after or 0) / 1000)

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed a moment later."""
        return self.status in THROTTLED or self.status >= 500 or self.code == "ConcurrentUpdateError"


def translated(refusal: Refusal) -> SandmeshError:
    """Return the mesh's error for a refusal.

    RuntimeUnavailable if keys, clock or rights are wrong; PoolExhausted if a quota is used up or requests are
    throttled; InvalidArgument if the request is; InternalError otherwise.
    """
    fix = _FIXES.get(refusal.code) or (_FIXES["AccessDenied"] if refusal.status in (401, 403) else "")
    if fix:
        return RuntimeUnavailable(f"Function Compute refuses: {refusal.message}: {fix}", {"fix": fix})
    if refusal.status in THROTTLED or refusal.code in _QUOTA:
        facts = {"bound": "the cloud's quota", "detail": refusal.message}
        message = f"Function Compute has no room, or throttles: {refusal.message}"
        return PoolExhausted(message, facts, retry_after=max(refusal.retry_after, 1.0))
    if refusal.status in (400, 422):
        return InvalidArgument(f"Function Compute does not accept this: {refusal.message}")
    return InternalError(f"Function Compute failed: {refusal.message}")


def unreachable(url: str, settings: FcSettings, error: BaseException) -> RuntimeUnavailable:
    """Return the error for an API that does not answer."""
    fix = f"check the network and its proxy, and that SANDMESH_FC_REGION_ID ({settings.region_id}) is a region"
    message = f"Function Compute does not answer at {url} ({str(error) or type(error).__name__}): {fix}"
    return RuntimeUnavailable(message, {"fix": fix})

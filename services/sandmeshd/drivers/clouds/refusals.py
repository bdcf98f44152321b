"""What a vendor refuses requests with, as the mesh's errors: each with the vendor's code and request id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sandmesh.errors import InternalError, InvalidArgument, PoolExhausted, RuntimeUnavailable, SandmeshError

NOT_FOUND, CONFLICT = 404, 409
THROTTLED: Final = (429, 503)
_QUOTA: Final = ("ResourceExhausted", "QuotaExceeded")

_KEY = "set {prefix}ACCESS_KEY_ID to a key that exists and is enabled"
_SECRET = "set {prefix}ACCESS_KEY_SECRET to the secret of that key"  # noqa: S105 - says which one is meant
_CLOCK = "set this machine's clock: requests are signed with its time"
_RIGHTS = "grant the key's user the rights that docs/clouds.md lists"
_FIXES: Final = {
    "InvalidAccessKeyID": _KEY,
    "InvalidAccessKeyId.NotFound": _KEY,
    "SignatureNotMatch": _SECRET,
    "SignatureDoesNotMatch": _SECRET,
    "InvalidTimeStamp.Expired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "AccessDenied": _RIGHTS,
    "InvalidSecurityToken.Expired": "renew {prefix}SECURITY_TOKEN and the keys that belong to it",
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


@dataclass(frozen=True)
class Refusals:
    """The errors of one product, whose settings have names that begin with a prefix."""

    product: str
    prefix: str
    region_id: str

    def translated(self, refusal: Refusal) -> SandmeshError:
        """Return the mesh's error for a refusal.

        RuntimeUnavailable if keys, clock or rights are wrong; PoolExhausted if a quota is used up or requests are
        throttled; InvalidArgument if the request is; InternalError otherwise.
        """
        known = _FIXES.get(refusal.code) or (_RIGHTS if refusal.status in (401, 403) else "")
        if known:
            fix = known.format(prefix=self.prefix)
            return RuntimeUnavailable(f"{self.product} refuses: {refusal.message}: {fix}", {"fix": fix})
        if refusal.status in THROTTLED or refusal.code in _QUOTA:
            facts = {"bound": "the cloud's quota", "detail": refusal.message}
            message = f"{self.product} has no room, or throttles: {refusal.message}"
            return PoolExhausted(message, facts, retry_after=max(refusal.retry_after, 1.0))
        if refusal.status in (400, 422):
            return InvalidArgument(f"{self.product} does not accept this: {refusal.message}")
        return InternalError(f"{self.product} failed: {refusal.message}")

    def unreachable(self, url: str, error: BaseException) -> RuntimeUnavailable:
        """Return the error for an API that does not answer."""
        fix = f"check the network and its proxy, and that {self.prefix}REGION_ID ({self.region_id}) is a region"
        message = f"{self.product} does not answer at {url} ({str(error) or type(error).__name__}): {fix}"
        return RuntimeUnavailable(message, {"fix": fix})

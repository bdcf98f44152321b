"""What URLs depend on beside their sandboxes: the quotas of owners and the tokens that the URLs were made with."""

from __future__ import annotations

from typing import Final

import structlog

from sandmesh.api.quota.v1 import quota_pb2, quota_pb2_grpc
from sandmesh.errors import SandmeshError, Unauthenticated
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.principal import SERVICE, acting_for
from sandmeshd.auth.token_cache import KnownTokens
from sandmeshd.gateway.ports.tokens import TokenTarget

log = structlog.get_logger()

_ENDLESS: Final = float("inf")


class UrlAuthority:
    """Count URLs against quotas, and know until when tokens are in force."""

    def __init__(self, quotas: quota_pb2_grpc.QuotaServiceAsyncStub, tokens: KnownTokens, timeout: float) -> None:
        self._quotas = quotas
        self._timeout = timeout
        self.tokens = tokens
        """The tokens in force."""

    async def hold(self, target: TokenTarget) -> None:
        """Count a URL until it ends.

        Raises:
            QuotaExceeded: Its owners have as many as they may.
        """
        held = quota_pb2.HoldPortRequest(sandbox_id=target.sandbox_id, exposure_id=target.exposure_id)
        held.expire_time.FromSeconds(target.expires)
        with acting_for(SERVICE), translated():
            await self._quotas.HoldPort(held, timeout=self._timeout)

    async def release(self, sandbox_id: str, exposure_id: str) -> None:
        """Stop counting a URL."""
        released = quota_pb2.ReleasePortRequest(sandbox_id=sandbox_id, exposure_id=exposure_id)
        try:
            with acting_for(SERVICE), translated():
                await self._quotas.ReleasePort(released, timeout=self._timeout)
        except SandmeshError as error:
            # It counts until it would have ended.
            log.info("a URL that ended still counts", exposure_id=exposure_id, error=error.message)

    async def expiry(self, token_id: str) -> float:
        """Return when a token ends, in seconds since 1970: never where there is no token.

        Raises:
            Unauthenticated: It was revoked or has expired.
        """
        return (await self.tokens.check_id(token_id)).expires if token_id else _ENDLESS

    async def ended(self, token_id: str) -> bool:
        """Return whether a token was revoked or has expired."""
        try:
            await self.expiry(token_id)
        except Unauthenticated:
            return True
        return False

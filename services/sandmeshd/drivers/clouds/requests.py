"""Requests to a vendor's API: those that are throttled wait, and those whose answer is lost are sent again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiohttp import ClientError
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
from alibabacloud_tea_openapi.utils_models import Config
from darabonba.exceptions import DaraException, RetryError, UnretryableException
from darabonba.runtime import RuntimeOptions

from sandmeshd.drivers.clouds.refusals import CONFLICT, NOT_FOUND, Refusal, Refusals
from sandmeshd.drivers.clouds.settings import CloudSettings

CONNECT_SECONDS, READ_SECONDS = 10, 60
PATIENCE_SECONDS: Final = 60.0
"""How long a request that is throttled, or whose answer is lost, is repeated."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0

CONFIG: Any = Config
"""Its annotations know of no value that may be missing."""

Resource = dict[str, Any]
Send = Callable[[], Awaitable[Any]]

log = structlog.get_logger()


class Requests:
    """The requests of one client of the vendor's library.

    Each may be sent more than once, so it must name what it makes. Methods raise `Refusal` where the caller knows what
    a status means, and else the mesh's errors.
    """

    def __init__(self, client: Any, refusals: Refusals, patience: float = PATIENCE_SECONDS) -> None:
        self._client = client
        self._patience = patience
        self._refusals = refusals
        self._url = str(client._endpoint)  # noqa: SLF001 - the library has no name for it

    async def call(self, name: str, *arguments: object) -> Resource:
        """Send a request until it is answered; return the answer.

        Raises:
            Refusal: What is named does not exist, or does already.
        """
        answer: Resource = await self.repeated(name, lambda: self.send(name, *arguments))
        return answer

    async def create(self, name: str, *arguments: object) -> None:
        """Create something, unless it exists."""
        try:
            await self.call(name, *arguments)
        except Refusal as refusal:
            # An answer that was lost, and whose request is sent again, finds what it made.
            if refusal.status != CONFLICT or refusal.code == "ConcurrentUpdateError":
                raise self._refusals.translated(refusal) from None

    async def delete(self, name: str, *arguments: object) -> None:
        """Delete something, if it exists."""
        try:
            await self.call(name, *arguments)
        except Refusal as refusal:
            if refusal.status != NOT_FOUND:
                raise self._refusals.translated(refusal) from None

    async def send(self, name: str, *arguments: object) -> Resource:
        """Send a request once."""
        method = getattr(self._client, f"{name}_with_options_async")
        options = RuntimeOptions(connect_timeout=CONNECT_SECONDS * 1000, read_timeout=READ_SECONDS * 1000)
        response = await method(*arguments, {}, options)
        body = getattr(response, "body", None)
        return body.to_map() if body is not None else {}

    async def repeated(self, name: str, send: Send) -> Any:
        """Send a request, again while it is throttled or its answer is lost.

        Raises:
            Refusal: What is named does not exist, or does already.
        """
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self._patience, FIRST_PAUSE
        while True:
            try:
                return await send()
            except AlibabaCloudException as error:
                refusal = Refusal.of(error)
                if not refusal.is_passing:
                    if refusal.status in (NOT_FOUND, CONFLICT):
                        raise refusal from None
                    raise self._refusals.translated(refusal) from None
                failure = self._refusals.translated(refusal)
                pause = max(pause, refusal.retry_after)
            except (ClientError, OSError, TimeoutError, DaraException, RetryError, UnretryableException) as error:
                failure = self._refusals.unreachable(self._url, error)
            if loop.time() + pause > end:
                raise failure
            log.info("a request to the cloud is repeated", request=name, reason=failure.message)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
            pause = min(pause * 2, LONGEST_PAUSE)


def config_of(settings: CloudSettings, default_host: str = "") -> Any:
    """Return what the vendor's clients are made with."""
    scheme, _, host = settings.endpoint.rpartition("://")
    return CONFIG(
        access_key_id=settings.access_key_id,
        access_key_secret=settings.access_key_secret.get_secret_value(),
        security_token=settings.security_token.get_secret_value() or None,
        region_id=settings.region_id,
        endpoint=host or default_host or None,
        protocol=scheme or "https",
    )

"""Function Compute's API as the driver uses it: throttled requests wait, lost answers are asked for again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final

import structlog
from aiohttp import ClientError
from alibabacloud_fc20230330 import models
from alibabacloud_fc20230330.client import Client
from alibabacloud_tea_openapi.exceptions import AlibabaCloudException
from alibabacloud_tea_openapi.utils_models import Config
from darabonba.exceptions import DaraException, RetryError, UnretryableException
from darabonba.runtime import RuntimeOptions

from sandmeshd.drivers.clouds.fc.refusals import CONFLICT, NOT_FOUND, Refusal, translated, unreachable
from sandmeshd.drivers.clouds.fc.settings import FcSettings

CONNECT_SECONDS, READ_SECONDS = 10, 60
PATIENCE_SECONDS: Final = 60.0
"""How long a request that is throttled, or whose answer is lost, is repeated."""

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 8.0
PAGE = 100

MODELS: Any = models
CONFIG: Any = Config
"""Their annotations know of no value that may be missing."""

Resource = dict[str, Any]
Send = Callable[[], Awaitable[Any]]

log = structlog.get_logger()


class FunctionCompute:
    """The requests to Function Compute in one region.

    Each may be sent again: functions, triggers and sessions have names of the driver's choice. Methods raise
    `Refusal` where the caller knows what a status means, and else the mesh's errors, as `translated`.
    """

    def __init__(self, settings: FcSettings, patience: float = PATIENCE_SECONDS) -> None:
        self._settings = settings
        self._patience = patience
        self._client: Any = _client(settings)
        self.url = str(self._client._endpoint)  # noqa: SLF001 - the library has no name for it

    async def check(self) -> None:
        """Check that the API answers, and takes the keys.

        Raises:
            RuntimeUnavailable: It does not; `facts["fix"]` says what to do.
        """
        await self._call("list_functions", MODELS.ListFunctionsRequest(limit=1))

    async def create_function(self, body: Resource) -> None:
        """Create a function, unless it exists."""
        request = MODELS.CreateFunctionRequest(body=MODELS.CreateFunctionInput().from_map(body))
        await self._create("create_function", request)

    async def create_trigger(self, function: str, body: Resource) -> None:
        """Create a trigger of a function, unless it exists."""
        request = MODELS.CreateTriggerRequest(body=MODELS.CreateTriggerInput().from_map(body))
        await self._create("create_trigger", function, request)

    async def create_session(self, function: str, body: Resource) -> None:
        """Create a session of a function, whose id nobody else has."""
        request = MODELS.CreateSessionRequest(body=MODELS.CreateSessionInput().from_map(body))
        await self._create("create_session", function, request)

    async def get_function(self, function: str) -> Resource:
        """Return a function.

        Raises:
            Refusal: It does not exist.
        """
        return await self._call("get_function", function, MODELS.GetFunctionRequest())

    async def get_trigger(self, function: str, trigger: str) -> Resource:
        """Return a trigger.

        Raises:
            Refusal: It does not exist.
        """
        return await self._call("get_trigger", function, trigger)

    async def list_functions(self, prefix: str) -> list[str]:
        """Return the names of the functions that begin with a prefix."""
        pages = self._pages("list_functions", (), lambda: MODELS.ListFunctionsRequest(limit=PAGE, prefix=prefix))
        return [str(one["functionName"]) async for page in pages for one in page.get("functions") or ()]

    async def list_sessions(self, function: str, session_id: str = "") -> list[Resource]:
        """Return the sessions of a function, or one of them, that live or ended; none if the function is gone."""
        wanted = session_id or None
        pages = self._pages(
            "list_sessions", (function,), lambda: MODELS.ListSessionsRequest(limit=PAGE, session_id=wanted)
        )
        try:
            return [one async for page in pages for one in page.get("sessions") or ()]
        except Refusal as refusal:
            if refusal.status == NOT_FOUND:
                return []
            raise translated(refusal) from None

    async def delete_session(self, function: str, session_id: str) -> None:
        """End a session, if it exists: from then on it is not billed."""
        await self._delete("delete_session", function, session_id, MODELS.DeleteSessionRequest())

    async def delete_trigger(self, function: str, trigger: str) -> None:
        """Delete a trigger, if it exists."""
        await self._delete("delete_trigger", function, trigger)

    async def delete_function(self, function: str) -> None:
        """Delete a function, if it exists."""
        await self._delete("delete_function", function)

    async def _pages(
        self, name: str, path: tuple[str, ...], request: Callable[[], Any]
    ) -> AsyncGenerator[Mapping[str, Any]]:
        token = None
        while True:
            query = request()
            query.next_token = token
            page = await self._call(name, *path, query)
            yield page
            token = page.get("nextToken")
            if not token:
                return

    async def _create(self, name: str, *arguments: object) -> None:
        try:
            await self._call(name, *arguments)
        except Refusal as refusal:
            # An answer that was lost, and whose request is sent again, finds what it made.
            if refusal.status != CONFLICT or refusal.code == "ConcurrentUpdateError":
                raise translated(refusal) from None

    async def _delete(self, name: str, *arguments: object) -> None:
        try:
            await self._call(name, *arguments)
        except Refusal as refusal:
            if refusal.status != NOT_FOUND:
                raise translated(refusal) from None

    async def _call(self, name: str, *arguments: object) -> Resource:
        method = getattr(self._client, f"{name}_with_options_async")
        options = RuntimeOptions(connect_timeout=CONNECT_SECONDS * 1000, read_timeout=READ_SECONDS * 1000)
        response = await self._repeated(name, lambda: method(*arguments, {}, options))
        body = getattr(response, "body", None)
        return body.to_map() if body is not None else {}

    async def _repeated(self, name: str, send: Send) -> Any:
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
                    raise translated(refusal) from None
                failure = translated(refusal)
                pause = max(pause, refusal.retry_after)
            except (ClientError, OSError, TimeoutError, DaraException, RetryError, UnretryableException) as error:
                failure = unreachable(self.url, self._settings, error)
            if loop.time() + pause > end:
                raise failure
            log.info("a request to Function Compute is repeated", request=name, reason=failure.message)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
            pause = min(pause * 2, LONGEST_PAUSE)


def _client(settings: FcSettings) -> Any:
    scheme, _, host = settings.endpoint.rpartition("://")
    if not host and settings.account_id:
        host = f"{settings.account_id}.{settings.region_id}.fc.aliyuncs.com"
    return Client(
        CONFIG(
            access_key_id=settings.access_key_id,
            access_key_secret=settings.access_key_secret.get_secret_value(),
            security_token=settings.security_token.get_secret_value() or None,
            region_id=settings.region_id,
            endpoint=host or None,
            protocol=scheme or "https",
        )
    )

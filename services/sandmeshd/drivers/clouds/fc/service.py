"""Function Compute's API as the driver uses it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from alibabacloud_fc20230330 import models
from alibabacloud_fc20230330.client import Client

from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.refusals import NOT_FOUND, Refusal, Refusals
from sandmeshd.drivers.clouds.requests import PATIENCE_SECONDS, Requests, Resource, config_of

PAGE = 100
PRODUCT = "Function Compute"

MODELS: Any = models
"""Their annotations know of no value that may be missing."""


class FunctionComputeApi:
    """The requests to Function Compute in one region.

    Each may be sent again: functions, triggers and sessions have names of the driver's choice. Methods raise
    `Refusal` where the caller knows what a status means, and else the mesh's errors.
    """

    def __init__(self, settings: FcSettings, patience: float = PATIENCE_SECONDS) -> None:
        account = f"{settings.account_id}.{settings.region_id}.fc.aliyuncs.com" if settings.account_id else ""
        self._refusals = Refusals(PRODUCT, settings.prefix_of_variables, settings.region_id)
        self._requests = Requests(Client(config_of(settings, account)), self._refusals, patience)

    async def check(self) -> None:
        """Check that the API answers, and takes the keys.

        Raises:
            RuntimeUnavailable: It does not; `facts["fix"]` says what to do.
        """
        await self._requests.call("list_functions", MODELS.ListFunctionsRequest(limit=1))

    async def create_function(self, body: Resource) -> None:
        """Create a function, unless it exists."""
        request = MODELS.CreateFunctionRequest(body=MODELS.CreateFunctionInput().from_map(body))
        await self._requests.create("create_function", request)

    async def create_trigger(self, function: str, body: Resource) -> None:
        """Create a trigger of a function, unless it exists."""
        request = MODELS.CreateTriggerRequest(body=MODELS.CreateTriggerInput().from_map(body))
        await self._requests.create("create_trigger", function, request)

    async def create_session(self, function: str, body: Resource) -> None:
        """Create a session of a function, whose id is unique."""
        request = MODELS.CreateSessionRequest(body=MODELS.CreateSessionInput().from_map(body))
        await self._requests.create("create_session", function, request)

    async def get_function(self, function: str) -> Resource:
        """Return a function.

        Raises:
            Refusal: It does not exist.
        """
        return await self._requests.call("get_function", function, MODELS.GetFunctionRequest())

    async def get_trigger(self, function: str, trigger: str) -> Resource:
        """Return a trigger.

        Raises:
            Refusal: It does not exist.
        """
        return await self._requests.call("get_trigger", function, trigger)

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
            return [session async for page in pages for session in page.get("sessions") or ()]
        except Refusal as refusal:
            if refusal.status == NOT_FOUND:
                return []
            raise self._refusals.translated(refusal) from None

    async def delete_session(self, function: str, session_id: str) -> None:
        """End a session, if it exists: from then on it is not billed."""
        await self._requests.delete("delete_session", function, session_id, MODELS.DeleteSessionRequest())

    async def delete_trigger(self, function: str, trigger: str) -> None:
        """Delete a trigger, if it exists."""
        await self._requests.delete("delete_trigger", function, trigger)

    async def delete_function(self, function: str) -> None:
        """Delete a function, if it exists."""
        await self._requests.delete("delete_function", function)

    async def _pages(
        self, name: str, path: tuple[str, ...], request: Callable[[], Any]
    ) -> AsyncGenerator[Mapping[str, Any]]:
        token = None
        while True:
            query = request()
            query.next_token = token
            page = await self._requests.call(name, *path, query)
            yield page
            token = page.get("nextToken")
            if not token:
                return

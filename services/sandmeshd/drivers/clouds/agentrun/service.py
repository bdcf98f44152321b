"""AgentRun's API as the driver uses it: runtimes, and their endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from alibabacloud_agentrun20250910 import models
from alibabacloud_agentrun20250910.client import Client

from sandmeshd.drivers.clouds.agentrun.settings import AgentRunSettings
from sandmeshd.drivers.clouds.refusals import CONFLICT, NOT_FOUND, Refusal, Refusals
from sandmeshd.drivers.clouds.requests import PATIENCE_SECONDS, Requests, Resource, config_of

PRODUCT = "AgentRun"
ENDPOINT = "default-endpoint"
PAGE = 50

MODELS: Any = models
"""Their annotations know of no value that may be missing."""

Find = Callable[[], Awaitable[str]]


class AgentRunApi:
    """The requests to AgentRun in one region.

    The service chooses the ids of runtimes and endpoints, so a request to make one is only sent again once a look for
    its name has found none: whatever a lost answer made is found by its name.
    """

    def __init__(self, settings: AgentRunSettings, patience: float = PATIENCE_SECONDS) -> None:
        self._refusals = Refusals(PRODUCT, settings.prefix_of_variables, settings.region_id)
        self._requests = Requests(Client(config_of(settings)), self._refusals, patience)

    async def check(self) -> None:
        """Check that the API answers, and takes the keys.

        Raises:
            RuntimeUnavailable: It does not; `facts["fix"]` says what to do.
        """
        await self._list("list_agent_runtimes", (), MODELS.ListAgentRuntimesRequest(page_number=1, page_size=1))

    async def create_runtime(self, body: Resource) -> str:
        """Create a runtime, unless one of its name exists; return its id."""
        request = MODELS.CreateAgentRuntimeRequest(body=MODELS.CreateAgentRuntimeInput().from_map(body))

        async def find() -> str:
            found = await self.runtimes(str(body["agentRuntimeName"]))
            return str(found[0]["agentRuntimeId"]) if found else ""

        return await self._made_once("create_agent_runtime", find, "agentRuntimeId", request)

    async def create_endpoint(self, runtime: str) -> str:
        """Create the endpoint of a runtime, unless it has one; return its id."""
        body = {"agentRuntimeEndpointName": ENDPOINT, "targetVersion": "LATEST"}
        request = MODELS.CreateAgentRuntimeEndpointRequest(body=MODELS.CreateAgentRuntimeEndpointInput().from_map(body))

        async def find() -> str:
            found = await self.endpoints(runtime)
            return str(found[0]["agentRuntimeEndpointId"]) if found else ""

        return await self._made_once("create_agent_runtime_endpoint", find, "agentRuntimeEndpointId", runtime, request)

    async def _made_once(self, name: str, find: Find, key: str, *arguments: object) -> str:
        is_first = True

        async def send() -> str:
            nonlocal is_first
            found = "" if is_first else await find()
            is_first = False
            return found or str((await self._requests.send(name, *arguments))["data"][key])

        try:
            return str(await self._requests.repeated(name, send))
        except Refusal as refusal:
            found = await find() if refusal.status == CONFLICT else ""
            if not found:
                raise self._refusals.translated(refusal) from None
            return found

    async def runtime(self, runtime: str) -> Resource | None:
        """Return a runtime, None if it does not exist."""
        return await self._one("get_agent_runtime", runtime, MODELS.GetAgentRuntimeRequest())

    async def endpoint(self, runtime: str, endpoint: str) -> Resource | None:
        """Return an endpoint of a runtime, None if it does not exist."""
        return await self._one("get_agent_runtime_endpoint", runtime, endpoint)

    async def runtimes(self, name: str = "", prefix: str = "") -> list[Resource]:
        """Return the runtimes of a name, or those whose names begin with a prefix."""
        request = MODELS.ListAgentRuntimesRequest(agent_runtime_name=name or None)
        listed = await self._pages("list_agent_runtimes", (), request)
        # What a filter by name matches is not said, so it is compared here.
        names = [(one, str(one.get("agentRuntimeName"))) for one in listed]
        return [one for one, found in names if (found == name if name else found.startswith(prefix))]

    async def endpoints(self, runtime: str) -> list[Resource]:
        """Return the endpoints of a runtime, none if it does not exist."""
        return await self._pages("list_agent_runtime_endpoints", (runtime,), MODELS.ListAgentRuntimeEndpointsRequest())

    async def delete_runtime(self, runtime: str) -> None:
        """Delete a runtime with its endpoints, if it exists: from then on it is not billed."""
        for endpoint in await self.endpoints(runtime):
            await self._requests.delete("delete_agent_runtime_endpoint", runtime, endpoint["agentRuntimeEndpointId"])
        await self._requests.delete("delete_agent_runtime", runtime)

    async def _one(self, name: str, *arguments: object) -> Resource | None:
        try:
            answer: Resource = (await self._requests.call(name, *arguments))["data"]
        except Refusal as refusal:
            if refusal.status == NOT_FOUND:
                return None
            raise self._refusals.translated(refusal) from None
        return answer

    async def _pages(self, name: str, path: tuple[str, ...], request: Any) -> list[Resource]:
        found: list[Resource] = []
        request.page_number, request.page_size = 1, PAGE
        while True:
            page = await self._list(name, path, request)
            found += page.get("items") or []
            if request.page_number * PAGE >= int(page.get("total") or 0):
                return found
            request.page_number += 1

    async def _list(self, name: str, path: tuple[str, ...], request: Any) -> Resource:
        try:
            return (await self._requests.call(name, *path, request)).get("data") or {}
        except Refusal as refusal:
            if refusal.status == NOT_FOUND:
                return {}
            raise self._refusals.translated(refusal) from None

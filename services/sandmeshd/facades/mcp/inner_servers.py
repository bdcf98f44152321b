"""The MCP servers inside the sandbox in use: their prompts, completions and resources, as one list each."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from mcp import MCPError, types
from pydantic import BaseModel, ConfigDict, ValidationError

from sandmesh import SandboxAsync, SandmeshError
from sandmesh._tools.model_names import qualified_names
from sandmesh.shared.sandbox_types import SANDBOX_TYPES
from sandmeshd.facades.mcp.failures import GONE, RESOURCE_NOT_FOUND, mesh_error
from sandmeshd.facades.mcp.resources import SCHEME as WORKSPACE
from sandmeshd.facades.mcp.sandboxes import SessionSandboxes

M = TypeVar("M", bound=BaseModel)

MOST_PAGES = 100
_FIELD = re.compile(r"\{[^}]*\}")


class InnerServers:
    """Sends requests to the servers, and merges what they list."""

    def __init__(self, sandboxes: SessionSandboxes, most_bytes: int = 0) -> None:
        self._sandboxes = sandboxes
        self._most_bytes = most_bytes

    async def names(self) -> list[str]:
        """Return the servers by name; a sandbox is made for them if it will have some.

        Raises:
            MCPError: The sandbox cannot be asked.
        """
        settings = self._sandboxes.settings
        named = settings.session is not None or settings.sandbox_id is not None
        none = not named and not settings.mcp_servers and settings.sandbox_type in SANDBOX_TYPES
        if self._sandboxes.current is None and none:
            return []
        async with self._box() as box:
            servers = await box.list_mcp_servers()
        wanted = settings.groups
        return [server.name for server in servers if server.state != "FAILED" and (not wanted or server.name in wanted)]

    async def request(self, server: str, method: str, params: Mapping[str, Any], result: type[M]) -> M:
        """Send a request to a server and return its result.

        Raises:
            MCPError: It was refused, or the result is invalid or larger than what the client takes.
        """
        async with self._box() as box:
            connection = await self._sandboxes.connections.open(box)
            answer = await connection.request(server, method, params)
        try:
            parsed = result.model_validate(answer, by_name=False)
        except ValidationError as error:
            invalid = f"MCP server {server!r} answered with what is invalid: {error}"
            raise MCPError(types.INTERNAL_ERROR, invalid) from None
        if self._most_bytes and result is not _Page and len(parsed.model_dump_json()) > self._most_bytes:
            message = f"the result of {method} is over {self._most_bytes} bytes, which is more than one message holds"
            raise MCPError(types.INTERNAL_ERROR, message)
        return parsed

    @asynccontextmanager
    async def _box(self) -> AsyncGenerator[SandboxAsync]:
        """Yield the sandbox in use; what the mesh refuses is raised as the protocol's error."""
        box: SandboxAsync | None = None
        try:
            box = await self._sandboxes.box()
            yield box
        except SandmeshError as error:
            if isinstance(error, GONE) and box is not None:
                await self._sandboxes.lost(box)
            if "code" in error.facts:
                raise MCPError(int(error.facts["code"]), error.message) from None
            raise mesh_error(error) from None

    async def listed(self, method: str, key: str, item: type[M]) -> list[tuple[str, M]]:
        """Return what all servers list, each with its server; a server that has no such list has none."""
        names = await self.names()
        pages = await asyncio.gather(*(self._pages(name, method, key) for name in names))
        found: list[tuple[str, M]] = []
        for name, raw in zip(names, pages, strict=True):
            for one in raw:
                try:
                    found.append((name, item.model_validate(one, by_name=False)))
                except ValidationError:
                    continue  # an invalid one costs no other
        return found

    async def _pages(self, server: str, method: str, key: str) -> list[object]:
        items: list[object] = []
        params: dict[str, Any] = {}
        try:
            for _ in range(MOST_PAGES):
                page = await self.request(server, method, params, _Page)
                more: object = (page.model_extra or {}).get(key)
                items += cast("list[object]", more) if isinstance(more, list) else []
                if not page.next_cursor:
                    break
                params = {"cursor": page.next_cursor}
        except MCPError:
            return items  # it has none, or does not run
        return items

    async def prompts(self) -> dict[str, tuple[str, types.Prompt]]:
        """Return the prompts by the names that clients see: `server.prompt` where several have one of that name."""
        listed = await self.listed("prompts/list", "prompts", types.Prompt)
        names = qualified_names((server, prompt.name) for server, prompt in listed)
        return {names[server, prompt.name]: (server, prompt) for server, prompt in listed}

    async def prompt(self, name: str) -> tuple[str, str]:
        """Return a prompt's server, and its name there.

        Raises:
            MCPError: There is none.
        """
        prompts = await self.prompts()
        if name not in prompts:
            known = ", ".join(prompts) or "none"
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {name!r}; there are {known}")
        server, prompt = prompts[name]
        return server, prompt.name

    async def complete(self, wanted: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete an argument of a prompt or of a template of resources.

        Raises:
            MCPError: There is no such prompt, or its server refuses.
        """
        params = wanted.model_dump(by_alias=True, mode="json", exclude_none=True)
        if isinstance(wanted.ref, types.PromptReference):
            server, own = await self.prompt(wanted.ref.name)
            params["ref"]["name"] = own
            return await self.request(server, "completion/complete", params, types.CompleteResult)
        owners = await self.owners(wanted.ref.uri)
        if not owners or wanted.ref.uri.startswith(WORKSPACE):
            return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))
        return await self.request(owners[0], "completion/complete", params, types.CompleteResult)

    async def owners(self, uri: str) -> list[str]:
        """Return the servers that may have a resource, the likeliest first: by their lists, then by their templates."""
        names = await self.names()
        if len(names) < 2:
            return names
        resources = await self.listed("resources/list", "resources", types.Resource)
        forms = await self.listed("resources/templates/list", "resourceTemplates", types.ResourceTemplate)
        likely = [server for server, one in resources if str(one.uri) == uri]
        likely += [server for server, one in forms if uri == one.uri_template or _matches(one.uri_template, uri)]
        return list(dict.fromkeys([*likely, *names]))

    async def of_resource(self, method: str, uri: str, result: type[M]) -> M:
        """Send a request about a resource to the server that has it.

        Raises:
            MCPError: None has it.
        """
        refusal = MCPError(RESOURCE_NOT_FOUND, f"{uri} is not there: no MCP server of the sandbox has it")
        for number, server in enumerate(await self.owners(uri)):
            try:
                return await self.request(server, method, {"uri": uri}, result)
            except MCPError as error:
                refusal = refusal if number else error
        raise refusal


class _Page(types.PaginatedResult):
    """A page of any list."""

    model_config = ConfigDict(extra="allow")


def _matches(template: str, uri: str) -> bool:
    """Return whether a URI has the literal parts of a template, in order."""
    first, *others = _FIELD.split(template)
    if not others or not uri.startswith(first) or not uri.endswith(others[-1]):
        return uri == template
    at = len(first)
    for part in others[:-1]:
        at = uri.find(part, at) + len(part)
        if at < len(part):
            return False
    return at <= len(uri) - len(others[-1])

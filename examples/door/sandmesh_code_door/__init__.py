"""A door that runs Python: `curl -d '1 + 1' -H 'Authorization: Bearer TOKEN' http://HOST:PORT/code/run`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import web
from pydantic import Field

from sandmesh import BaseSandboxAsync
from sandmesh.errors import SandmeshError
from sandmeshd.contracts.door import DoorHost, DoorPlugin, DoorSettings


class CodeSettings(DoorSettings, env_prefix="SANDMESH_CODE_"):
    """Settings of the door."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_CODE")
    """Run code that clients post to /code/run, with a token of the mesh as their bearer token."""

    largest_code: int = Field(default=64 << 10, gt=0)
    """The most bytes of code that a request may have."""


class CodeDoor:
    """Runs the code of each request in a sandbox that ends with the request."""

    def __init__(self, settings: CodeSettings, address: str) -> None:
        self._settings = settings
        self._address = address

    def add(self, application: web.Application) -> None:
        """Add the door's route."""
        application.router.add_post("/code/run", self._run)

    async def _run(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not token:
            return web.json_response({"error": "give a token of the mesh as the bearer token"}, status=401)
        code = await request.content.read(self._settings.largest_code + 1)
        if len(code) > self._settings.largest_code:
            return web.json_response({"error": f"at most {self._settings.largest_code} bytes of code"}, status=413)
        try:
            async with BaseSandboxAsync(base_url=self._address, bearer_token=token) as box:
                result = await box.run_ipython_cell(code.decode(errors="replace"))
        except SandmeshError as error:
            return web.json_response({"error": error.message}, status=502)
        return web.json_response({"output": result.text, "failed": result.is_error})


@asynccontextmanager
async def open_door(settings: CodeSettings, host: DoorHost) -> AsyncGenerator[CodeDoor]:
    """Open the door until the block ends."""
    yield CodeDoor(settings, host.mesh.url)


DOOR = DoorPlugin(CodeSettings, open_door, "Post Python to {url}/code/run, with a token as the bearer token.")

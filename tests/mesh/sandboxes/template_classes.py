"""Classes of sandboxes as a user writes them; a mesh takes this file as an extension too."""

from __future__ import annotations

import os

from sandmesh import (
    BaseSandbox,
    FilesystemSandboxAsync,
    Sandbox,
    SandboxRegistry,
    SandboxType,
    build_image_uri,
    sandbox_tool,
)


@SandboxRegistry.register(
    build_image_uri("runtime-sandbox-base"),
    sandbox_type="weather",
    resource_limits={"pids": 64, "file_size": "1m"},
    security_level="high",
    description="Weather, without a network.",
    environment={"STATION": os.environ.get("SANDMESH_TEST_STATION", "north")},
)
class WeatherSandbox(BaseSandbox):
    """A sandbox with tools of its own."""

    @sandbox_tool
    @staticmethod
    def to_fahrenheit(celsius: float, digits: int = 1) -> float:
        """Convert a temperature."""
        return round(celsius * 9 / 5 + 32, digits)

    @sandbox_tool
    @staticmethod
    async def describe(place: str, seconds: float = 0) -> str:
        """Say where it was measured."""
        import asyncio  # noqa: PLC0415 - it runs inside
        import os  # noqa: PLC0415 - as above

        await asyncio.sleep(seconds)
        return f"{place}, measured in the {os.environ['STATION']} as uid {os.getuid()}"

    @sandbox_tool
    @staticmethod
    def table(rows: int) -> object:
        """Make a table."""
        from importlib import import_module  # noqa: PLC0415 - as above

        # Pandas is the template's: neither here nor typed.
        made: object = import_module("pandas").DataFrame({"row": range(rows)})
        return made


@SandboxRegistry.register("sandmesh/runtime-sandbox-base:latest", sandbox_type="atelier", timeout=None)
class AtelierAsync(FilesystemSandboxAsync):
    """A sandbox for files, of an event loop."""


@SandboxRegistry.register(build_image_uri("runtime-sandbox-not_built_yet"), sandbox_type="not_built_yet")
class NotBuiltYet(Sandbox):
    """A class whose image does not exist; its constructor is as users of another system write it."""

    def __init__(
        self,
        sandbox_id: str | None = None,
        timeout: int = 3000,
        base_url: str | None = None,
        bearer_token: str | None = None,
    ) -> None:
        super().__init__(sandbox_id, timeout, base_url, bearer_token, SandboxType("not_built_yet"))

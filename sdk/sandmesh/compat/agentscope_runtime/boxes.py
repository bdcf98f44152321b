"""Boxes with the old names of methods and parameters where these differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, cast

import sandmesh
from sandmesh import ToolResult
from sandmesh.compat.agentscope_runtime import desktops
from sandmesh.compat.agentscope_runtime.files import SandboxFS, SandboxFSAsync

B = TypeVar("B", sandmesh.BaseSandbox, sandmesh.BaseSandboxAsync)


class SandboxAsync(sandmesh.SandboxAsync):
    """A sandbox of any type, for an event loop, with methods under their old names, which end with `_async`."""

    @property
    def fs(self) -> Any:
        """The sandbox's files: a SandboxFSAsync."""
        return SandboxFSAsync(super().fs, lambda: self.sandbox_id)

    async def start_async(self) -> Self:
        """Call `start`."""
        return await self.start()

    async def close_async(self) -> None:
        """Call `close`."""
        await self.close()

    async def get_info_async(self) -> dict[str, Any]:
        """Call `get_info`."""
        return await self.get_info()

    async def list_tools_async(self, tool_type: str | None = None) -> dict[str, Any]:
        """Call `list_tools`."""
        return await self.list_tools(tool_type)

    async def call_tool_async(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call `call_tool`."""
        return await self.call_tool(name, arguments)

    async def add_mcp_servers_async(self, server_configs: Mapping[str, Any], overwrite: bool = False) -> Any:
        """Call `add_mcp_servers`."""
        return await self.add_mcp_servers(server_configs, overwrite)


class BaseSandboxAsync(SandboxAsync, sandmesh.BaseSandboxAsync):
    """A sandbox with a Python kernel and a shell, for an event loop."""


class _ShownAsync(BaseSandboxAsync):
    """A sandbox of which people see something."""

    async def get_desktop_url_async(self) -> str:
        """Return `desktop_url`."""
        url: str = await cast("Any", self).desktop_url
        return url


class FilesystemSandboxAsync(_ShownAsync, desktops.FilesystemSandboxAsync):
    """A sandbox with tools for files and a desktop, for an event loop."""


class BrowserSandboxAsync(_ShownAsync, sandmesh.BrowserSandboxAsync):
    """A sandbox with a browser, for an event loop."""


class GuiSandboxAsync(_ShownAsync, sandmesh.GuiSandboxAsync):
    """A sandbox with a desktop, for an event loop."""


class MobileSandboxAsync(BaseSandboxAsync, sandmesh.MobileSandboxAsync):
    """A sandbox that holds an Android device, for an event loop."""


class Sandbox(sandmesh.Sandbox):
    """A sandbox of any type."""

    @property
    def fs(self) -> Any:
        """The sandbox's files: a SandboxFS."""
        return SandboxFS(super().fs, lambda: self.sandbox_id)


class BaseSandbox(Sandbox, sandmesh.BaseSandbox):
    """A sandbox with a Python kernel and a shell."""


class FilesystemSandbox(BaseSandbox, sandmesh.FilesystemSandbox):
    """A sandbox with tools for files and a desktop; two of the tools accept the old names of their parameters, too."""

    twin_class: ClassVar[type[sandmesh.SandboxAsync]] = desktops.FilesystemSandboxAsync

    def edit_file(  # type: ignore[override]  # the old names of parameters
        self,
        path: str,
        edits: Sequence[Mapping[str, Any]],
        dryRun: bool = False,  # noqa: N803 - the old name
        dry_run: bool = False,
    ) -> ToolResult:
        """Replace pieces of a file's text."""
        arguments = {"path": path, "edits": list(edits), "dry_run": dryRun or dry_run}
        return self.call_tool("edit_file", arguments)

    def search_files(  # type: ignore[override]  # the old names of parameters
        self,
        path: str,
        pattern: str,
        excludePatterns: Sequence[str] = (),  # noqa: N803 - the old name
        exclude_patterns: Sequence[str] = (),
    ) -> ToolResult:
        """Find files by their names."""
        excluded = [*excludePatterns, *exclude_patterns]
        return self.call_tool("search_files", {"path": path, "pattern": pattern, "exclude_patterns": excluded})


class BrowserSandbox(BaseSandbox, sandmesh.BrowserSandbox):
    """A sandbox with a browser."""


class GuiSandbox(BaseSandbox, sandmesh.GuiSandbox):
    """A sandbox with a desktop."""


class MobileSandbox(BaseSandbox, sandmesh.MobileSandbox):
    """A sandbox that holds an Android device."""


def variant(made: type[B]) -> type[B]:
    """Return the class with the old names that derives from a built-in one."""
    above = BaseSandboxAsync if issubclass(made, sandmesh.SandboxAsync) else BaseSandbox
    found: object = globals().get(made.__name__) or type(made.__name__, (above, made), {"__doc__": made.__doc__})
    return cast("type[B]", found)

"""Boxes with the old names of methods and parameters where these differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sandmesh
from sandmesh import ToolResult
from sandmesh._tools.filesystem import Edit


class _AsyncNames(sandmesh.SandboxAsync):
    """The methods of an async box under their old names, which end with `_async`."""

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


class SandboxAsync(_AsyncNames):
    """A sandbox of any type, for an event loop."""


class BaseSandboxAsync(_AsyncNames, sandmesh.BaseSandboxAsync):
    """A sandbox with a Python kernel and a shell, for an event loop."""


class FilesystemSandboxAsync(_AsyncNames, sandmesh.FilesystemSandboxAsync):
    """A sandbox with tools for files, for an event loop."""


class FilesystemSandbox(sandmesh.FilesystemSandbox):
    """A sandbox with tools for files; two of them also accept the old names of their parameters."""

    def edit_file(self, path: str, edits: Sequence[Edit], dryRun: bool = False, dry_run: bool = False) -> ToolResult:  # type: ignore[override]  # noqa: N803 - the old name
        """Replace pieces of a file's text."""
        arguments = {"path": path, "edits": list(edits), "dry_run": dryRun or dry_run}
        return self.call_tool("edit_file", arguments)

    def search_files(  # type: ignore[override]  # as above
        self,
        path: str,
        pattern: str,
        excludePatterns: Sequence[str] = (),  # noqa: N803 - the old name
        exclude_patterns: Sequence[str] = (),
    ) -> ToolResult:
        """Find files by their names."""
        excluded = [*excludePatterns, *exclude_patterns]
        return self.call_tool("search_files", {"path": path, "pattern": pattern, "exclude_patterns": excluded})

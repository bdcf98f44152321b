"""Where MCP clients keep their servers, by their documentation, for the current user."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class McpHost:
    """A program with an MCP client: its name, the key of its servers, and what an entry has besides its command."""

    name: str
    title: str
    key: str = "mcpServers"
    toml: bool = False
    extra: tuple[tuple[str, str], ...] = ()

    def entry(self, command: str, arguments: list[str]) -> dict[str, object]:
        """Return the entry of a server that runs a command."""
        return {**dict(self.extra), "command": command, "args": arguments}


CLIENTS: Final = {
    client.name: client
    for client in (
        McpHost(name="claude-desktop", title="Claude Desktop"),
        McpHost(name="claude-code", title="Claude Code", extra=(("type", "stdio"),)),
        McpHost(name="cursor", title="Cursor"),
        McpHost(name="vscode", title="VS Code", key="servers", extra=(("type", "stdio"),)),
        McpHost(name="codex", title="Codex", key="mcp_servers", toml=True),
        McpHost(name="gemini", title="Gemini CLI"),
    )
}


def settings_path(client: McpHost, environment: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the file with a client's settings of this user, whether it exists or not."""
    home = Path(environment.get("HOME") or Path.home())
    programs = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    if platform == "darwin":
        programs = home / "Library" / "Application Support"
    return {
        "claude-desktop": programs / "Claude" / "claude_desktop_config.json",
        # With CLAUDE_CONFIG_DIR the file is in that folder.
        "claude-code": Path(environment.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json",
        "cursor": home / ".cursor" / "mcp.json",
        "vscode": programs / "Code" / "User" / "mcp.json",
        "codex": Path(environment.get("CODEX_HOME") or home / ".codex") / "config.toml",
        "gemini": home / ".gemini" / "settings.json",
    }[client.name]

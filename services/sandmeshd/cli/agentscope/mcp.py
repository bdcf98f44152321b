"""`runtime-sandbox-mcp`: `sandmesh mcp` by the name that MCP clients may have in their configuration."""

from __future__ import annotations

from sandmeshd.cli.mcp import mcp
from sandmeshd.cli.terminal.single_command import single_command

app = single_command(mcp, epilog="Example: runtime-sandbox-mcp --type=base --base_url=http://localhost:8000")

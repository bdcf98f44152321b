"""Shows sandboxes to clients of the Model Context Protocol, over standard input and output or over HTTP.

It is a client of the SDK: the tools are those that a sandbox has, and every MCP session has its own sandbox.
"""

from sandmeshd.facades.mcp.settings import AdapterSettings, McpHttpSettings

__all__ = ["AdapterSettings", "McpHttpSettings"]

"""`sandmesh mcp install` and `uninstall`: the entry of the adapter in the settings of MCP clients."""

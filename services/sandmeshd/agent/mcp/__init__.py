"""MCP servers of the sandbox: their configuration, processes and tools.

The servers and the process that speaks the protocol with them (sandmeshd.agent.mcp.client) run as user code; the
manager loads none of that process's libraries.
"""

"""MCP servers of the sandbox: what is configured, what runs, whose tools there are.

The servers and the program that speaks the protocol with them (sandmeshd.agent.mcp.client) are user code's; nothing
here loads that program's libraries.
"""

"""The MCP host: a program inside the sandbox that speaks the protocol with the sandbox's MCP servers.

It runs as user code does, started by the agent when the first server is, with libraries of its own. The agent starts
the servers that are programs and hands their pipes over; it trusts nothing that comes from here.
"""

"""The MCP client process of a sandbox, which speaks the protocol with the sandbox's MCP servers.

It runs as user code does, started by the agent with the first server, with its own libraries. The agent starts the
servers that are programs and passes their pipes to it; the agent trusts nothing that this process sends.
"""

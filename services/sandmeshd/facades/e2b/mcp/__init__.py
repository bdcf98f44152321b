"""The MCP gateway of E2B's clients: servers that a sandbox is made with, and the port where they are reached."""

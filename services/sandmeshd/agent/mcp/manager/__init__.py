"""The agent's side of MCP: configuration, servers and the program that speaks the protocol with them."""

"""The door for AgentScope Runtime's SDK: the HTTP API of its server, over the public client of a mesh."""

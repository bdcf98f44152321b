"""The door for SandboxFusion's clients: the HTTP API of its server, over the public client of a mesh."""

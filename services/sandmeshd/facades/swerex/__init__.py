"""The door for SWE-ReX's RemoteRuntime: the HTTP API of its server, over the public client of a mesh."""

"""`sandmesh ssh`: OpenSSH's clients in sandboxes of any image, by an SSH server that runs beside the client."""

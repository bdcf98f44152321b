"""`sandmesh agent`: coding agents of others in sandboxes, on a copy of a folder."""

"""`sandmesh storage`: directories to and from the storage of workspaces."""

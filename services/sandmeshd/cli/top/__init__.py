"""`sandmesh top`: a mesh in a terminal, as it changes."""

"""A driver for sandmesh in a package of its own."""

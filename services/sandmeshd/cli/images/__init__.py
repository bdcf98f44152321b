"""`sandmesh image`: the images that are on this machine."""

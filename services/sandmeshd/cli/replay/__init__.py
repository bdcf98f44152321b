"""`sandmesh replay`: what was recorded, shown."""

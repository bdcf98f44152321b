"""The services of a sandmesh mesh."""

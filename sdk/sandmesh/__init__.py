"""sandmesh: isolated computers on demand."""

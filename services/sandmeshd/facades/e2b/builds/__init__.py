"""Templates that clients build, and names of their snapshots: each is a snapshot of the mesh, with start values."""

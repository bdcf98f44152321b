"""A stand-in for Function Compute: its API, its gateway, and the instances behind it."""

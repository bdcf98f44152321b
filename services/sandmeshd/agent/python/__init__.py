"""The kernels of a sandbox and the cells that they run."""

"""Settings of a mesh: read from files, the environment and the machine's own clients."""

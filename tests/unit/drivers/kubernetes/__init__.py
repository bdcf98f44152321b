"""The parts of the kubernetes driver that need no cluster."""

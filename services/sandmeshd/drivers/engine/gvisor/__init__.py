"""The gvisor driver: the docker driver with gVisor's runtime, runsc, so that each sandbox has a kernel of its own."""

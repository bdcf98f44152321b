"""The gvisor driver: the docker driver with gVisor's runtime, runsc, so that each sandbox has its own kernel."""

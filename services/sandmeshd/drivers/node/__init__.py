"""What drivers on a machine share: directories of sandboxes, locks, deletion, seccomp and the agent bundle."""

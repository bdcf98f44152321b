"""The memory of a forked kernel: seen, saved, and restored in other processes."""

"""The start of an agent: as PID 1 of a container or of bwrap, or forked from a zygote."""

"""The start of an agent: as PID 1 of a container, of bwrap, or forked from a zygote."""

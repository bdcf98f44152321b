"""Layers: each unpacked once, in a process that cannot leave the directory that it fills."""

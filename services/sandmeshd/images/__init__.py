"""Images of computers: pulled from registries and unpacked without an engine, one layer in one directory.

`store` has what the drivers and the command line use; this file imports nothing, since the program that unpacks layers
is started from here, once for each.
"""

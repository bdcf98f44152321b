"""The kubernetes driver: one pod per sandbox, in one namespace of a cluster that places them."""

"""The kubernetes driver: a pod a sandbox, in one namespace of a cluster that places them."""

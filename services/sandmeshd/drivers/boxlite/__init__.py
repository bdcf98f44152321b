"""The boxlite driver: a sandbox is a named box of BoxLite, a small virtual machine of this machine."""

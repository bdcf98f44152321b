"""Where images come from: registries, and files and directories of this machine."""

"""The browser of a sandbox: the process that drives it, and the tools that use it."""

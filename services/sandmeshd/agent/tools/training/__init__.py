"""The training environments of a sandbox: their processes, their instances and the tools that use them."""

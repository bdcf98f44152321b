"""The process inside a sandbox that runs its tools."""

"""Commands that run programs in a sandbox."""

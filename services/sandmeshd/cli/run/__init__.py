"""Commands that run something in a sandbox."""

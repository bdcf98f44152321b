"""Processes of user code: spawned, followed, measured and ended."""

"""Pausing and resuming sandboxes, for their holders, for requests, and when they are idle."""

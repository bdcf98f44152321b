"""The process that drives a sandbox's browser for the browser tools."""

"""Traces from a program through all services to the processes of a sandbox."""

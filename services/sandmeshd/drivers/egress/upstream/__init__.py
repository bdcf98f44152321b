"""Connections to hosts: found by name, allowed, dialled and carried."""

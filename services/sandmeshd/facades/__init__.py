"""Doors for clients of other protocols."""

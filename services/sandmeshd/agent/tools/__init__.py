"""Handlers of the agent's tools."""

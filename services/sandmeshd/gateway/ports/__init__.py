"""Ports of sandboxes at URLs of the gateway: HTTP and WebSocket through the link to the agent."""

from sandmeshd.gateway.ports.app import open_ports

__all__ = ["open_ports"]

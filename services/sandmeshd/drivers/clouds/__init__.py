"""Drivers over clouds that rent sandboxes: sessions of functions, reached by WebSockets and born late."""

"""Webhooks: events of a mesh, sent to HTTP endpoints by a client of the mesh."""

"""Sessions of a mesh: their leases, their boxes, and their status."""

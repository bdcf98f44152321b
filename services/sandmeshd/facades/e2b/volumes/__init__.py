"""Volumes of E2B's clients: the mesh's volumes, looked into by a small sandbox of the caller's own."""

"""A seeded fuzz of every public RPC, and of every parser of bytes that come out of sandboxes."""

"""A seeded fuzz of every public RPC, and of the parsers of bytes that come out of sandboxes."""

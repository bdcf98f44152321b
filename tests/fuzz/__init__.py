"""A seeded fuzz of the parsers of bytes that come out of sandboxes."""

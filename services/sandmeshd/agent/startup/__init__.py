"""The preparation of a fresh agent for its first calls."""

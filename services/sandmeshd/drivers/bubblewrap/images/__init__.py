"""Sandboxes whose root is an image: what their root is made of, whose ids they have, and their start."""

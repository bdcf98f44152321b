"""The start of an agent whose root is an image."""

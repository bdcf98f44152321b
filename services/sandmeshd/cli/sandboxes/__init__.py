"""Commands on a mesh's sandboxes and what belongs to them."""

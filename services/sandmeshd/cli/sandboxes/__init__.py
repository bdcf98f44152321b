"""Commands on the sandboxes of a mesh and what belongs to them."""

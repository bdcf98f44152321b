"""Images of templates and of the mesh's services."""

"""`sandmesh build`: images and Python environments of templates."""

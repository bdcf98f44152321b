"""A Python that runs in any root: it brings its own loader, libraries and standard library."""

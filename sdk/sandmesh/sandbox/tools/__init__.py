"""The tools of sandboxes: as methods, as tools of models, and the files of long replies."""

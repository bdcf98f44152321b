"""Import paths of other systems over this one. Nothing here is imported unless a program says so."""

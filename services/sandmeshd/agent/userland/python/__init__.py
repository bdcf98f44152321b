"""Kernels of Python: they run cells and report what these print, show and return."""

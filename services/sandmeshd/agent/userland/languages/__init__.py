"""Kernels of other languages than Python, each a program between the agent's frames and a language."""

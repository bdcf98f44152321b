"""Attacks on a mesh, counted: `python -m tests.attacks` makes them all and writes the table of docs/threat-model.md."""

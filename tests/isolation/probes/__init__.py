"""Attempts at getting out of a sandbox, as one program that needs nothing but Python.

`python3 -m probes FILE`, run inside, takes JSON of what to look for and prints one JSON object: to each attempt's name
the list of what it could do that it should not. Each runs in a child of its own, so that none spoils another.
None of them harms the machine where it succeeds: in a sandbox with its walls taken out they show that they can.
"""

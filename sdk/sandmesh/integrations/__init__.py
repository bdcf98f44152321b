"""Adapters that let other frameworks run on sandmesh: a module each, over the public names of the SDK alone.

The framework itself is installed by its user; no module here is imported by the rest of the SDK.
"""

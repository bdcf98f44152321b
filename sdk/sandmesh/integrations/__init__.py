"""Adapters that let other frameworks run on sandmesh: one module each, using only public names of the SDK.

The framework itself is installed by its user; no module here is imported by the rest of the SDK.
"""

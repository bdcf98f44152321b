"""Tenants of a mesh: projects and users, and what they may have at the same time."""

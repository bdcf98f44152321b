"""Builds images: a Dockerfile's stages and steps, each of which is carried out once and kept as a layer."""

"""Protections, each removed by a patch that a named test must notice: `make mutants`."""

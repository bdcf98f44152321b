"""Measures the kubernetes driver on a real API server and scheduler, whose machines are stand-ins."""

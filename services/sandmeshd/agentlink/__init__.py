"""Clients of a sandbox's agent: addresses, links and archives over them."""

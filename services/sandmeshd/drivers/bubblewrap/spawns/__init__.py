"""Sandboxes that zygotes spawn: the exchange with each, and those that wait for a create."""

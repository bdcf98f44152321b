"""What rooms agree on that may not import each other: the driver interface, and what agents and services both read."""

"""Secrets: stored encrypted, resolved for creates, and put in force in running sandboxes."""

"""Secrets: values that sandboxes have placeholders of, and that the egress proxy puts into requests to their hosts."""

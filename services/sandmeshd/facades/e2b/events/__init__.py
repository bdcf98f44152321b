"""The lifecycle events of sandboxes, as E2B publishes them: the list and the webhooks."""

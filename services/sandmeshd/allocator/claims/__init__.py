"""Claims of sandboxes: from a request to a started, leased sandbox, or one of a pool."""

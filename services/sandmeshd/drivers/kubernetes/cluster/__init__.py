"""The cluster that the driver uses: its API, the credentials for it, and what it allows."""

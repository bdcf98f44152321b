"""Registries: their client, the credentials for them, and which of them may be used."""

"""The stream of all calls over TCP and TLS."""

"""Authentication: principals, the identity of services, and tokens that clients show at the gateway."""

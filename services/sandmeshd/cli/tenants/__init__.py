"""Commands for tenants: tokens, quotas, usage, the audit, secrets and webhooks."""

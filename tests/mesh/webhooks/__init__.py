"""Webhooks, with receivers that fail and end."""

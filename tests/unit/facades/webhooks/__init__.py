"""Tests of webhooks' parts."""

"""Owns tokens: what clients show at the gateway, kept as hashes."""

from __future__ import annotations

from sandmeshd.tokens.records import TokenRecords
from sandmeshd.tokens.servicer import TokenServicer

__all__ = ["TokenRecords", "TokenServicer"]

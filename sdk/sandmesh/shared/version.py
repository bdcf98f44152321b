"""The version, which the distribution, the agent and all else take from here."""

from __future__ import annotations

__version__ = "0.1.0.dev0"

"""Own sessions: what a user comes back to."""

from __future__ import annotations

from sandmeshd.broker.app import open_broker
from sandmeshd.broker.servicer import SessionServicer
from sandmeshd.broker.settings import BrokerSettings

__all__ = ["BrokerSettings", "SessionServicer", "open_broker"]

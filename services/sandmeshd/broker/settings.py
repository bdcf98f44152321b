"""Settings of the broker."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class BrokerSettings(BaseModel):
    """Settings of one broker."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    retention_seconds: PositiveInt = 7 * 86400
    """How long a session is remembered after it was last connected or kept, even if its sandboxes have ended."""

    slots: PositiveInt = 64
    """The most slots of one request."""

    release_timeout_seconds: float = Field(default=10.0, gt=0)
    """How long releasing the sandboxes of a failed request may take."""

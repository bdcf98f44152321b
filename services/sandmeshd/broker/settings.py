"""What a broker can be told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, PositiveInt


class BrokerSettings(BaseModel):
    """Settings of one broker."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    retention_seconds: PositiveInt = 7 * 86400
    """How long a session is remembered after it was last connected or kept, whatever became of its sandboxes."""

    slots: PositiveInt = 64
    """The most slots that one request may ask for."""

    release_timeout_seconds: float = Field(default=10.0, gt=0)
    """How long giving back the sandboxes of a request that failed may take."""

"""What a gateway can be told."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, SecretStr


class GatewaySettings(BaseModel):
    """Settings of one gateway."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    listen: tuple[str, ...]
    """Addresses: unix:///path or host:port; port 0 takes a free one."""

    http_listen: tuple[str, ...] = ("127.0.0.1:0",)
    """Addresses for HTTP (health, ports of sandboxes) as host:port; port 0 takes a free one; none: no HTTP."""

    bearer_token: SecretStr | None = None
    """What clients on TCP must send as `authorization: Bearer ...`; none: no token is asked for."""

    connect_timeout_seconds: float = 5.0
    """How long an agent may take to answer a new link."""

    deadline_grace_seconds: float = 10.0
    """How long after a call's own timeout the agent may take to send its result."""

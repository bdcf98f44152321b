"""What a gateway can be told."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator


class GatewaySettings(BaseModel):
    """Settings of one gateway."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    listen: tuple[str, ...]
    """Addresses: unix:///path or host:port; port 0 takes a free one."""

    share_ports: bool = False
    """Other processes listen at the same addresses: the system spreads connections over all."""

    http_ports: tuple[int, int] | None = None
    """First and last of the ports for HTTP where its address has port 0; none: any."""

    http_listen: tuple[str, ...] = ("127.0.0.1:0",)
    """Addresses for HTTP (health, ports of sandboxes) as host:port; port 0 takes a free one; none: no HTTP."""

    http_url: str | None = None
    """Where clients reach the HTTP listener when that is not its address, as https://host behind a TLS proxy."""

    ports_domain: str | None = None
    """A domain whose every name leads to the HTTP listener: exposed ports are then names of it, each its own origin."""

    url_secret: SecretStr | None = None
    """Signs URLs; gateways of one mesh share it. None: one that ends with the gateway."""

    tls_cert: Path | None = None
    """The certificate of TCP addresses, with its chain, in PEM; read again when the file changes."""

    tls_key: Path | None = None
    """The certificate's key, in PEM."""

    require_token: bool | None = None
    """Whether clients on TCP must show a token; none: where there is TLS, a bearer token or an open address."""

    allow_insecure: bool = False
    """Listen beyond loopback all the same where TLS is not there, or tokens are not asked for."""

    bearer_token: SecretStr | None = None
    """One token beside those of the store, taken as `authorization: Bearer ...`."""

    bearer_user: str = ""
    """The user that the bearer token stands for; empty: an administrator."""

    token_cache_seconds: float = Field(default=10.0, gt=0)
    """How long a token that was checked is taken without asking again; revocations are told at once all the same."""

    activity_seconds: float = Field(default=2.0, gt=0)
    """How often it tells which sandboxes are in use; idle times are several times as long."""

    connect_timeout_seconds: float = 5.0
    """How long an agent may take to answer a new link."""

    deadline_grace_seconds: float = 10.0
    """How long after a call's own timeout the agent may take to send its result."""

    agent_silence_seconds: float = Field(default=15.0, gt=0)
    """After how long without a word, asked for in between, the link to an agent counts as broken."""

    @model_validator(mode="after")
    def _both_of_tls(self) -> GatewaySettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give tls_cert and tls_key, or neither")
        return self

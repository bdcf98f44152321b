"""Settings of a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from sandmeshd.runtime.setting_types import ListenAddress, PortRange, ServiceAddress, WebUrl
from sandmeshd.runtime.settings import Settings

DOMAIN = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?$"


class GatewaySettings(Settings):
    """Settings of one gateway."""

    listen: tuple[ServiceAddress, ...] = Field(default=(), validation_alias="SANDMESH_LISTEN")
    """Addresses beside the mesh's unix socket, as host:port; beyond loopback only with TLS and tokens."""

    share_ports: bool = False
    """Other processes listen at the same addresses: the system spreads connections over all."""

    http_ports: PortRange = Field(default=None, validation_alias="SANDMESH_PORT_RANGE")
    """First and last of the ports that HTTP listens at one of, where `http_listen` states port 0, as [49152, 59152]."""

    http_listen: tuple[ListenAddress, ...] = Field(default=("127.0.0.1:0",), validation_alias="SANDMESH_HTTP_LISTEN")
    """Addresses for HTTP (health, ports of sandboxes) as host:port, loopback only; port 0 takes a free one."""

    http_url: WebUrl | None = Field(default=None, validation_alias="SANDMESH_HTTP_URL")
    """Where clients reach the HTTP listener when that is not its address, as https://host behind a TLS proxy."""

    ports_domain: str | None = Field(default=None, pattern=DOMAIN, validation_alias="SANDMESH_PORTS_DOMAIN")
    """A domain whose every name leads to the HTTP listener: exposed ports are then names of it, each its own origin."""

    url_secret: SecretStr | None = None
    """Signs URLs; gateways of one mesh share it. None: one that ends with the gateway."""

    tls_cert: Path | None = Field(default=None, validation_alias="SANDMESH_TLS_CERT")
    """The certificate of the gateway's TCP addresses, with its chain, in PEM; read again when the file changes."""

    tls_key: Path | None = Field(default=None, validation_alias="SANDMESH_TLS_KEY")
    """The certificate's key, in PEM."""

    require_token: bool | None = Field(default=None, validation_alias="SANDMESH_REQUIRE_TOKEN")
    """Whether clients on TCP must show a token; none: where there is TLS, a bearer token or an open address."""

    allow_insecure: bool = Field(default=False, validation_alias="SANDMESH_ALLOW_INSECURE")
    """Listen beyond loopback even without TLS, or without asking for tokens."""

    bearer_token: SecretStr | None = Field(default=None, validation_alias="SANDMESH_BEARER_TOKEN")
    """One token that clients may show, beside those of `sandmesh token`."""

    bearer_user: str = Field(default="", validation_alias="SANDMESH_BEARER_USER")
    """The user that the bearer token stands for; empty: an administrator."""

    token_cache_seconds: float = Field(default=10.0, gt=0, validation_alias="SANDMESH_TOKEN_CACHE_SECONDS")
    """How long a checked token is accepted without asking again; revocations take effect immediately all the same."""

    audit_file: Path | None = Field(default=None, validation_alias="SANDMESH_AUDIT_FILE")
    """A file to which the audit is appended as JSON lines; none: events are kept only in the store, newest first."""

    audit_syslog: str = Field(
        default="", pattern=r"^(unix:///\S+|udp://\S+)?$", validation_alias="SANDMESH_AUDIT_SYSLOG"
    )
    """A syslog server that gets the audit too, a message of JSON an entry: unix:///dev/log or udp://HOST:PORT."""

    audit_on_failure: Literal["continue", "refuse"] = Field(
        default="continue", validation_alias="SANDMESH_AUDIT_ON_FAILURE"
    )
    """While the audit's file or syslog cannot be written: continue with a warning, or refuse to start and changes."""

    sandbox_metrics: int = Field(default=0, ge=0, le=1000, validation_alias="SANDMESH_SANDBOX_METRICS")
    """Of how many sandboxes, at most, a gateway's `/metrics` shows what each of them uses; 0: of none."""

    sandbox_metrics_seconds: float = Field(default=10.0, ge=0)
    """After which a scrape measures them again; an earlier one gets the same values."""

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
            raise ValueError(
                "a certificate needs its key: set SANDMESH_TLS_CERT and SANDMESH_TLS_KEY (--tls-cert and --tls-key), "
                "or neither"
            )
        return self

"""What the adapter can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from sandmesh.inputs import Options


class AdapterSettings(BaseModel):
    """Which sandboxes MCP sessions get, and where from."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    sandbox_type: str = "base"
    """The type of a session's sandbox."""

    base_url: str | None = None
    """The mesh; none: this user's local one, else a private one."""

    bearer_token: SecretStr | None = None
    """What is shown to the mesh where the MCP client shows no token of its own."""

    session: str | None = None
    """A session whose sandbox is used and stays; none: every MCP session has its own, which ends with it."""

    user: str | None = None
    """Whose session that is; none: the token's user."""

    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of user code."""

    limits: dict[str, Any] | None = None
    """What a sandbox may use: memory, cpus, pids, file_size, disk."""

    network: tuple[str, ...] | None = None
    """What it may reach: none, public, packages, or hosts; none is the template's default."""

    mcp_servers: dict[str, Any] = Field(default_factory=dict)
    """MCP servers to run inside the sandbox, by name, as `mcpServers` of a client's configuration says them."""

    manage: bool = False
    """Whether there are tools that list, make, switch and end sandboxes."""

    eager: bool = False
    """Whether the sandbox is made when the client connects, and not at the first call."""

    timeout: float = Field(default=3000.0, gt=0)
    """Seconds that a call, or getting a sandbox, may take."""

    ttl: float = Field(default=60.0, ge=10)
    """Seconds after which the mesh ends a sandbox whose adapter vanished without a word."""

    @model_validator(mode="after")
    def _nothing_ignored(self) -> AdapterSettings:
        if self.session is not None and (self.env or self.limits or self.network):
            raise ValueError("a named session's sandbox takes no env, limits or network: leave them or the name out")
        return self

    def sandbox_options(self) -> Options:
        """Give what else a sandbox is to be, as the SDK's constructors take it."""
        return Options(env=self.env or None, limits=self.limits, network=self.network, ttl=self.ttl)


class HttpSettings(BaseModel):
    """Where the adapter listens for HTTP, and who may come."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    listen: tuple[str, ...] = ("127.0.0.1:8580",)
    """Addresses as host:port; port 0 takes a free one."""

    tls_cert: Path | None = None
    """The certificate, with its chain, in PEM."""

    tls_key: Path | None = None
    """The certificate's key, in PEM."""

    require_token: bool | None = None
    """Whether clients must show a token of the mesh; none: where there is TLS or an address that is open to others."""

    allow_insecure: bool = False
    """Listen beyond loopback all the same where TLS is not there, or tokens are not asked for."""

    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may call the adapter by beside its addresses, as host or host:port."""

    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use it, as https://host; those of the adapter's own addresses may."""

    idle_timeout: float = Field(default=600.0, gt=0)
    """Seconds without a request or an open stream after which an MCP session and its sandbox end."""

    max_sessions: int = Field(default=1000, gt=0)
    """The most MCP sessions at once."""

    @model_validator(mode="after")
    def _both_of_tls(self) -> HttpSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give tls_cert and tls_key, or neither")
        return self

"""The settings of the MCP adapter."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from sandmesh.inputs import Options
from sandmesh.replies import REPLY_CHARACTERS
from sandmeshd.facades import http
from sandmeshd.runtime.setting_types import ListenAddress


class AdapterSettings(BaseModel):
    """Which sandboxes MCP sessions get, and where from."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    sandbox_type: str = "base"
    """The type of a session's sandbox."""

    base_url: str | None = None
    """The mesh; none: this user's local one, else a private one."""

    bearer_token: SecretStr | None = None
    """The token that is shown to the mesh if the MCP client shows none."""

    session: str | None = None
    """A session whose sandbox is used and stays; none: every MCP session has its own, which ends with it."""

    sandbox_id: str | None = None
    """A sandbox that is there, is used and stays."""

    groups: tuple[str, ...] = ()
    """Groups of tools, and servers of the sandbox, that clients are offered; empty for all."""

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

    ask: bool = False
    """Whether the client's user is asked, by elicitation, to allow a host that the sandbox was refused."""

    reply_characters: int = Field(default=REPLY_CHARACTERS, ge=1)
    """The most characters of text that a model is sent for one call; a call's `_meta` may set another number."""

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
        """Return the further options of a sandbox, as the SDK's constructors take them."""
        return Options(env=self.env or None, limits=self.limits, network=self.network, ttl=self.ttl)


class McpHttpSettings(http.HttpListenSettings):
    """Where the adapter listens for HTTP, and who may use it."""

    listen: tuple[ListenAddress, ...] = ("127.0.0.1:8580",)
    """Addresses as host:port; port 0 takes a free one."""

    largest_message: int = Field(default=1 << 20, ge=0)
    """The most bytes that clients take as one message, 0 for no bound: larger results become links to their parts."""

    idle_timeout: float = Field(default=600.0, gt=0)
    """Seconds without a request or an open stream after which an MCP session and its sandbox end."""

    max_sessions: int = Field(default=1000, gt=0)
    """The most simultaneous MCP sessions."""

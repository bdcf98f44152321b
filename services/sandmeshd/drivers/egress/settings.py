"""What the egress of a driver can be told."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr


class PackageIndexes(BaseModel):
    """The indexes that the preset `packages` names, as the node's own clients are configured."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    pip: str = ""
    """The index of pip; empty for https://pypi.org/simple."""

    pip_extra: tuple[str, ...] = ()
    """Further ones of pip. Those that are directories of the node (file:) are not seen by sandboxes."""

    npm: str = ""
    """The registry of npm; empty for https://registry.npmjs.org/."""


class EgressSettings(BaseModel):
    """Settings of the egress proxy of one driver."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    private: Literal["named", "never"] = "named"
    """Whether a grant may name hosts with private addresses; `never` keeps users out of the node's own network."""

    proxy: SecretStr | None = None
    """The proxy that the node itself needs to reach others (http://host:port, with user:password@ if it asks)."""

    no_proxy: str = ""
    """Hosts that the node reaches without that proxy, separated by commas."""

    indexes: PackageIndexes = PackageIndexes()
    """What the preset `packages` names."""

    connections: int = Field(default=64, ge=1, le=1024)
    """The most connections of one sandbox at once."""

    total_connections: int = Field(default=2048, ge=1)
    """The most connections of all sandboxes of the driver at once."""

    head_seconds: float = Field(default=10.0, gt=0)
    """How long a request's head may take to arrive."""

    connect_seconds: float = Field(default=10.0, gt=0)
    """How long finding and reaching a host may take."""

    idle_seconds: float = Field(default=300.0, gt=0)
    """How long a connection may be without a byte either way."""

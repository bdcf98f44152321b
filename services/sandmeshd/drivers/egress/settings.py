"""Settings of a driver's egress."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from sandmesh.shared.hosts import normal_host
from sandmeshd.runtime.setting_types import IndexUrl, check_proxy
from sandmeshd.runtime.settings import Settings


class PackageIndexes(Settings):
    """The indexes that the preset `packages` names, as the node's own clients are configured."""

    pip: IndexUrl = Field(default="", validation_alias="SANDMESH_PIP_INDEX_URL")
    """The index that the grant `packages` names; by default the one that pip is configured with here."""

    pip_extra: tuple[IndexUrl, ...] = Field(default=(), validation_alias="SANDMESH_PIP_EXTRA_INDEX_URLS")
    """Further ones, as a JSON list; by default those that pip is configured with here."""

    apt: tuple[IndexUrl, ...] = Field(default=(), validation_alias="SANDMESH_APT_URLS")
    """Archives of Debian packages that the grant `packages` names besides the distributions' own, as a JSON list; by
    default those that apt is configured with here."""

    npm: IndexUrl = Field(default="", validation_alias="SANDMESH_NPM_REGISTRY")
    """The npm registry that the grant `packages` names; by default the one that npm is configured with here."""


class EgressSettings(Settings):
    """Settings of the egress proxy of one driver."""

    private: Literal["named", "never"] = Field(default="named", validation_alias="SANDMESH_EGRESS_PRIVATE")
    """Whether a grant may name hosts with private addresses; `never` keeps users out of the node's own network."""

    reserved: tuple[str, ...] = Field(default=(), validation_alias="SANDMESH_EGRESS_RESERVED")
    """Hosts that no grant reaches, as a JSON list like ["redis.corp:6379"]; the mesh's listeners here always are."""

    proxy: SecretStr | None = Field(default=None, validation_alias="SANDMESH_EGRESS_PROXY")
    """The proxy that the node needs to reach others, as http://[user:password@]host:port; by default HTTPS_PROXY's."""

    no_proxy: str = Field(default="", validation_alias="SANDMESH_EGRESS_NO_PROXY")
    """Hosts that the node reaches without that proxy, separated by commas; by default NO_PROXY's."""

    ca_file: Path | None = Field(default=None, validation_alias="SANDMESH_EGRESS_CA_FILE")
    """A PEM file of certificates that may sign those of secrets' hosts, besides the ones that the system trusts."""

    adb_devices: tuple[str, ...] = Field(default=(), validation_alias="SANDMESH_ADB_DEVICES")
    """Android devices for sandboxes of the type mobile, as a JSON list of serials of `adb devices` on the node."""

    adb_server: str = Field(default="127.0.0.1:5037", pattern=r"^.+:\d{1,5}$", validation_alias="SANDMESH_ADB_SERVER")
    """The address of the node's adb server, which has these devices."""

    adb_reset: str = Field(default="", validation_alias="SANDMESH_ADB_RESET")
    """A shell script that resets a device before a sandbox gets it; by default the one in docs/mobile.md."""

    mesh_secret: SecretStr | None = Field(default=None, exclude=True)
    """The secret that the mesh's services share; without it there are no secrets in sandboxes."""

    indexes: PackageIndexes = PackageIndexes()
    """What the preset `packages` names."""

    connections: int = Field(default=64, ge=1, le=1024)
    """The most simultaneous connections per sandbox."""

    total_connections: int = Field(default=2048, ge=1)
    """The most simultaneous connections of all sandboxes of the driver; an owner has a quarter of them, and a sandbox
    an eighth of what its owner has free."""

    head_seconds: float = Field(default=10.0, gt=0)
    """How long a request's head may take to arrive."""

    connect_seconds: float = Field(default=10.0, gt=0)
    """How long finding and reaching a host may take."""

    idle_seconds: float = Field(default=300.0, gt=0)
    """How long a connection may be without a byte either way."""

    @field_validator("reserved")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(normal_host(host) for host in hosts)

    @field_validator("proxy")
    @classmethod
    def _none_if_empty(cls, proxy: SecretStr | None) -> SecretStr | None:
        return check_proxy(proxy)

"""Settings of the door for E2B's clients."""

from __future__ import annotations

from pydantic import Field

from sandmeshd.runtime.setting_types import ListenAddress
from sandmeshd.runtime.settings import Settings


class E2bSettings(Settings):
    """Settings of the door for E2B's clients."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_E2B")
    """Serve E2B's clients on the HTTP listener, which then takes keys of `sandmesh token create --form e2b`."""

    domain: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        validation_alias="SANDMESH_E2B_DOMAIN",
    )
    """A domain whose every name leads here: E2B's clients then reach each port of a sandbox by a name of its own."""

    listen: tuple[ListenAddress, ...] = Field(default=("127.0.0.1:0",), validation_alias="SANDMESH_E2B_LISTEN")
    """Addresses for HTTPS where there is a domain, as host:port, loopback only; port 0 takes a free one."""

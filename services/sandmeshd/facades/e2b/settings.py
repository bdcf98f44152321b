"""Settings of the door for E2B's clients."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from sandmeshd.contracts.door import DoorSettings
from sandmeshd.runtime.setting_types import ListenAddress


class E2bSettings(DoorSettings):
    """Settings of the door for E2B's clients."""

    enabled: bool = Field(default=False, validation_alias="SANDMESH_E2B")
    """Serve E2B's clients on the HTTP listener, which then takes keys of `sandmesh token create --form e2b`."""

    domain: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        validation_alias="SANDMESH_E2B_DOMAIN",
    )
    """A domain whose every name leads here: E2B's clients then reach each port of a sandbox by its own name."""

    listen: tuple[ListenAddress, ...] = Field(default=("127.0.0.1:0",), validation_alias="SANDMESH_E2B_LISTEN")
    """Addresses for HTTPS where there is a domain, as host:port, loopback only; port 0 takes a free one."""

    base_image: str = Field(default="", validation_alias="SANDMESH_E2B_BASE_IMAGE")
    """The image of templates that clients build from E2B's base, as debian:12; empty: the mesh's own `base`."""

    webhooks_inward: bool = Field(default=False, validation_alias="SANDMESH_E2B_WEBHOOKS_INWARD")
    """Let webhooks of clients lead to loopback and private networks, which everybody with a key then reaches."""

    @field_validator("domain")
    @classmethod
    def _check_open(cls, domain: str | None, info: ValidationInfo) -> str | None:
        if domain is not None and not info.data.get("enabled"):
            raise ValueError("it is of the door for E2B's clients: set SANDMESH_E2B=true too")
        return domain

"""Settings of the fc driver."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from sandmeshd.drivers.api.settings import DriverSettings

LONGEST_SESSION = 21_600
"""The seconds after which Function Compute ends every session: 6 hours."""


def check_session(seconds: int) -> int:
    """Return the seconds that a session may live.

    Raises:
        ValueError: Function Compute has no such sessions.
    """
    if not 1 <= seconds <= LONGEST_SESSION:
        raise ValueError(f"Function Compute's sessions live 1 to {LONGEST_SESSION} s, which are 6 hours")
    return seconds


class FcSettings(DriverSettings):
    """Settings of the fc driver of one mesh."""

    access_key_id: str = Field(default="", validation_alias="SANDMESH_FC_ACCESS_KEY_ID")
    """The id of the access key that functions and sessions are made with."""

    access_key_secret: SecretStr = Field(default=SecretStr(""), validation_alias="SANDMESH_FC_ACCESS_KEY_SECRET")
    """Its secret; no sandbox has it."""

    security_token: SecretStr = Field(default=SecretStr(""), validation_alias="SANDMESH_FC_SECURITY_TOKEN")
    """The token of temporary keys (STS); none: they are an account's or a user's."""

    account_id: str = Field(default="", validation_alias="SANDMESH_FC_ACCOUNT_ID")
    """The account's id: its requests then go to the account's own endpoint in the region."""

    region_id: str = Field(default="cn-hangzhou", validation_alias="SANDMESH_FC_REGION_ID")
    """The region of functions and images."""

    endpoint: str = Field(default="", validation_alias="SANDMESH_FC_ENDPOINT")
    """The endpoint of the API, as host or http://host:port; by default the region's own."""

    cpu: float = Field(default=2.0, ge=0.05, le=16, validation_alias="SANDMESH_FC_CPU")
    """The processors of a sandbox whose creator states none, in steps of 0.05."""

    memory: int = Field(default=2048, ge=128, le=32_768, validation_alias="SANDMESH_FC_MEMORY")
    """The MiB of a sandbox whose creator states none, in steps of 64; 1 to 4 GiB a processor."""

    prefix: str = Field(
        default="sandmesh", pattern=r"^[A-Za-z][A-Za-z0-9-]{0,39}$", validation_alias="SANDMESH_FC_PREFIX"
    )
    """What the functions' names begin with."""

    log_project: str = Field(default="", validation_alias="SANDMESH_FC_LOG_PROJECT")
    """The project of the vendor's log service that instances write to, with `log_store`; none: they write nowhere."""

    log_store: str = Field(default="", validation_alias="SANDMESH_FC_LOG_STORE")
    """The store of that project."""

    role: str = Field(default="", validation_alias="SANDMESH_FC_ROLE")
    """The role with which images of a private registry are pulled; it needs no other right."""

    registry: str = Field(default="", validation_alias="SANDMESH_REGISTRY")
    """The registry that images are pulled from: one of the same account and region."""

    namespace: str = Field(default="sandmesh", validation_alias="SANDMESH_IMAGE_NAMESPACE")
    """The namespace of images: what precedes their names."""

    tag: str = Field(default="latest", validation_alias="SANDMESH_IMAGE_TAG")
    """The tag of images."""

    session_seconds: Annotated[int, AfterValidator(check_session)] = Field(
        default=LONGEST_SESSION, validation_alias="SANDMESH_FC_SESSION_TTL"
    )
    """Seconds after which the vendor ends a sandbox, whatever its lease says: at most 21600."""

    idle_seconds: int = Field(default=3600, ge=0, le=LONGEST_SESSION, validation_alias="SANDMESH_FC_SESSION_IDLE")
    """Seconds without any link after which the vendor ends a sandbox, as if the driver's machine is gone; 0: never."""

    request_seconds: int = Field(default=LONGEST_SESSION, ge=60, le=86_400, validation_alias="SANDMESH_FC_TIMEOUT")
    """Seconds after which the vendor cuts a link; it is made again, and calls go on."""

    start_timeout: float = Field(default=300.0, gt=0, validation_alias="SANDMESH_FC_START_TIMEOUT")
    """Seconds that a sandbox may take to start, with the pull of its image in it."""

    lost_seconds: float = Field(default=10.0, gt=0)
    """Seconds without an answer of its agent after which a sandbox is lost."""

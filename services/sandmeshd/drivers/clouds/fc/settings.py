"""Settings of the fc driver."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from sandmeshd.drivers.clouds.settings import CloudSettings

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


class FcSettings(CloudSettings, env_prefix="SANDMESH_FC_"):
    """Settings of the fc driver of one mesh."""

    driver: ClassVar[str] = "fc"

    prefix: str = Field(default="sandmesh", pattern=r"^[A-Za-z][A-Za-z0-9-]{0,39}$")
    """What the functions' names begin with."""

    session_seconds: Annotated[int, AfterValidator(check_session)] = Field(
        default=LONGEST_SESSION, validation_alias="SANDMESH_FC_SESSION_TTL"
    )
    """Seconds after which the vendor ends a sandbox, even if its lease lasts longer: at most 21600."""

    idle_seconds: int = Field(default=3600, ge=0, le=LONGEST_SESSION, validation_alias="SANDMESH_FC_SESSION_IDLE")
    """Seconds without any link after which the vendor ends a sandbox, as if the driver's machine is gone; 0: never."""

    request_seconds: int = Field(default=LONGEST_SESSION, ge=60, le=86_400, validation_alias="SANDMESH_FC_TIMEOUT")
    """Seconds after which the vendor cuts a link; it is made again, and calls go on."""

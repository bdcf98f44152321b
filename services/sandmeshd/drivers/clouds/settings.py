"""Settings of every driver that rents its sandboxes; each vendor's own class names their variables."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, SecretStr

from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.runtime.settings import OF_DERIVED


class CloudSettings(DriverSettings, env_prefix=OF_DERIVED):
    """Settings of the driver of one mesh at a vendor."""

    driver: ClassVar[str]
    """The driver's name."""

    access_key_id: str = ""
    """The id of the access key that sandboxes are rented with."""

    access_key_secret: SecretStr = SecretStr("")
    """Its secret; no sandbox has it."""

    account_id: str = ""
    """The account's id; with it, Function Compute is asked at the account's own endpoint in the region."""

    security_token: SecretStr = SecretStr("")
    """The token of temporary keys (STS); none: they are an account's or a user's."""

    region_id: str = "cn-hangzhou"
    """The region of sandboxes and images."""

    endpoint: str = ""
    """The endpoint of the API, as host or http://host:port; by default the region's own."""

    cpu: float = Field(default=2.0, ge=0.05, le=16)
    """The processors of a sandbox whose creator states none, in steps of 0.05."""

    memory: int = Field(default=2048, ge=128, le=32_768)
    """The MiB of a sandbox whose creator states none, in steps of 64; 1 to 4 GiB a processor."""

    cpu_price: float = Field(default=0.0, ge=0)
    """The vendor's price of a processor per hour, in any unit; 0 with the other: costs are not known."""

    memory_price: float = Field(default=0.0, ge=0)
    """What it asks for a GiB of memory for an hour, in the same unit."""

    log_project: str = ""
    """The project of the vendor's log service that instances write to, with `log_store`; none: they write nowhere."""

    log_store: str = ""
    """The store of that project."""

    role: str = ""
    """The role with which images of a private registry are pulled; it needs no other right."""

    registry: str = Field(default="", validation_alias="SANDMESH_REGISTRY")
    """The registry that images are pulled from: one of the same account and region."""

    namespace: str = Field(default="sandmesh", validation_alias="SANDMESH_IMAGE_NAMESPACE")
    """The namespace of images: what precedes their names."""

    tag: str = Field(default="latest", validation_alias="SANDMESH_IMAGE_TAG")
    """The tag of images."""

    start_timeout: float = Field(default=300.0, gt=0)
    """Seconds that a sandbox may take to start, with the pull of its image in it."""

    lost_seconds: float = Field(default=10.0, gt=0)
    """Seconds without an answer of its agent, whose gateway answers, after which a sandbox is lost."""

    @property
    def prefix_of_variables(self) -> str:
        """How the names of the driver's own variables begin."""
        return str(self.model_config.get("env_prefix", ""))

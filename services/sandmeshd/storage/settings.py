"""What a storage of workspaces can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

Service = Literal["local", "s3", "oss", "gcs", "azblob"]


class StorageSettings(BaseModel):
    """Settings of one storage: a directory of this machine, or a bucket of an object storage."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    service: Service
    """Where workspaces are kept."""

    folder: Path = Path("/")
    """The directory, or a prefix in the bucket."""

    bucket: str = ""
    """The bucket, or for azblob the container."""

    endpoint: str = ""
    """The service's address; s3 and gcs have one of their own."""

    region: str = ""
    """The bucket's region, for s3."""

    key_id: SecretStr | None = None
    """The access key's id, or for azblob the account's name."""

    key_secret: SecretStr | None = None
    """The access key's secret, or for gcs the credential in base64."""

    limit_bytes: int = Field(default=2 << 30, gt=0)
    """The largest workspace that is saved."""

    timeout_seconds: float = Field(default=60.0, gt=0)
    """How long one piece may take on its way."""

    concurrency: int = Field(default=4, ge=1)
    """How many pieces are on their way at once, each at most 4 MiB."""

    @model_validator(mode="after")
    def _whole(self) -> StorageSettings:
        if self.service != "local" and not self.bucket:
            raise ValueError(f"{self.service} needs a bucket: give SANDMESH_STORAGE_BUCKET")
        if self.service in ("oss", "azblob") and not self.endpoint:
            raise ValueError(f"{self.service} needs its address: give SANDMESH_STORAGE_ENDPOINT")
        if self.service == "local" and self.bucket:
            raise ValueError("a bucket is of no use to local: leave SANDMESH_STORAGE_BUCKET out")
        return self

"""Settings of the storage of workspaces."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field, SecretStr, model_validator

from sandmeshd.runtime.setting_types import WebUrl
from sandmeshd.runtime.settings import Settings

Service = Literal["", "local", "s3", "oss", "gcs", "azblob"]


class StorageSettings(Settings):
    """Settings of one storage: a directory of this machine, or a bucket of an object storage."""

    service: Service = Field(default="", validation_alias="SANDMESH_FILE_SYSTEM")
    """What sessions' workspaces are saved in for their return; local, or empty: only where storage_folder is set."""

    folder: Path | None = Field(default=None, validation_alias="SANDMESH_STORAGE_FOLDER")
    """The directory for them, relative ones below the state directory, or a prefix in the bucket."""

    bucket: str = Field(default="", validation_alias="SANDMESH_STORAGE_BUCKET")
    """The bucket, or for azblob the container."""

    endpoint: WebUrl = Field(default="", validation_alias="SANDMESH_STORAGE_ENDPOINT")
    """The address of the object storage, where it is not the service's own."""

    region: str = Field(default="", validation_alias="SANDMESH_STORAGE_REGION")
    """The bucket's region, for s3."""

    key_id: SecretStr | None = Field(default=None, validation_alias="SANDMESH_STORAGE_KEY_ID")
    """The access key's id, or for azblob the account's name."""

    key_secret: SecretStr | None = Field(default=None, validation_alias="SANDMESH_STORAGE_KEY_SECRET")
    """The access key's secret, or for gcs the credential in base64."""

    limit_bytes: ByteSize = Field(default=ByteSize(2 << 30), gt=0, validation_alias="SANDMESH_STORAGE_LIMIT")
    """The largest workspace that is saved, as 2GiB; one that is larger stays in its sandbox until this is raised."""

    timeout_seconds: float = Field(default=60.0, gt=0)
    """How long the transfer of one piece may take."""

    concurrency: int = Field(default=4, ge=1)
    """How many pieces are transferred in parallel, each at most 4 MiB."""

    @property
    def root(self) -> Path:
        """The directory, or the prefix in the bucket."""
        return self.folder or Path("/")

    @model_validator(mode="after")
    def _whole(self) -> StorageSettings:
        if not self.service:
            return self
        if self.service != "local" and not self.bucket:
            raise ValueError(f"{self.service} needs a bucket: set SANDMESH_STORAGE_BUCKET")
        if self.service in ("oss", "azblob") and not self.endpoint:
            raise ValueError(f"{self.service} needs its address: set SANDMESH_STORAGE_ENDPOINT")
        if self.service == "local" and self.bucket:
            raise ValueError("local does not use a bucket: unset SANDMESH_STORAGE_BUCKET")
        return self

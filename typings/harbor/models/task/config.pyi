from enum import StrEnum

from pydantic import BaseModel

class NetworkMode(StrEnum):
    NO_NETWORK = "no-network"
    PUBLIC = "public"
    ALLOWLIST = "allowlist"

class NetworkPolicy(BaseModel):
    network_mode: NetworkMode
    allowed_hosts: list[str]

class EnvironmentConfig(BaseModel):
    docker_image: str | None = None
    storage_mb: int | None = None
    workdir: str | None = None

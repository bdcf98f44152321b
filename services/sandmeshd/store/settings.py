"""Settings of the store."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator


class StoreSettings(BaseModel):
    """Settings of one store: an external server by `url`, or one of the mesh's own in `directory`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    mesh_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """The mesh; every key carries it as its hash tag, so that a Redis Cluster keeps a mesh together."""

    url: SecretStr | None = None
    """An external server: redis://, rediss:// or unix://. None: a server of the mesh's own."""

    directory: Path | None = None
    """Where the mesh's own server keeps its data; made with mode 0700."""

    socket: Path | None = None
    """The unix socket of the mesh's own server, in a 0700 directory; at most 107 bytes long."""

    outlives_machine: bool = True
    """Whether the mesh's own server syncs each write to its disk before it responds. Else the operating system has it,
    which survives the end of any process, but not of the machine."""

    start_timeout_seconds: float = Field(default=10.0, gt=0)
    """How long the server may take to answer at the start."""

    command_timeout_seconds: float = Field(default=5.0, gt=0)
    """How long one command may take."""

    connections: int = Field(default=16, ge=1)
    """How many connections are held at most, besides one for notifications."""

    takeover_seconds: float = Field(default=0.1, gt=0)
    """How often a process that uses another's server checks whether that one ended, to restart it."""

    @model_validator(mode="after")
    def _one_server(self) -> StoreSettings:
        own = self.directory is not None and self.socket is not None
        if own == (self.url is not None):
            raise ValueError("set either url, or directory and socket")
        return self

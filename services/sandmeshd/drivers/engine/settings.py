"""What the docker driver can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sandmeshd.drivers.egress import EgressSettings
from sandmeshd.drivers.engine.links import PORTS, Link, LinkChoice, check_address, check_ports
from sandmeshd.drivers.engine.runtimes import KINDS, Kind, KindName
from sandmeshd.drivers.node.agent_config import USER_ID
from sandmeshd.drivers.node.host_directories import Rules
from sandmeshd.drivers.node.host_files import granted
from sandmeshd.drivers.snapshots import DEFAULT_BYTES
from sandmeshd.runtime.paths import MeshPaths

DEFAULT_URL = "unix:///var/run/docker.sock"


class DockerSettings(BaseModel):
    """Settings of the docker driver of one mesh on one node."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    paths: MeshPaths
    """The mesh's directories; they must exist, where the engine sees the same files."""

    node_id: str = "local"
    """The node that the driver is."""

    url: str = DEFAULT_URL
    """The engine's socket, as unix:///path, or tcp://host:port."""

    certificates: Path | None = None
    """A folder with ca.pem, cert.pem and key.pem, for an engine on TCP; none: it is asked without TLS."""

    agent_link: LinkChoice = "auto"
    """How agents are reached; auto: by a socket, else a network of this machine, else at ports."""

    publish_address: Annotated[str, AfterValidator(check_address)] = ""
    """The one address of the engine's machine that agents' ports are published on."""

    agent_ports: Annotated[tuple[int, int], AfterValidator(check_ports)] = PORTS
    """First and last of those ports."""

    link: Link = Link()
    """How agents are reached, once it is known; `open_driver` finds that out."""

    driver: KindName = "docker"
    """Which driver over the engine it is: docker, or gvisor."""

    registry: str = ""
    """The registry of the images; empty: they are built here, and never pulled."""

    namespace: str = "sandmesh"
    """What comes before an image's name."""

    tag: str = "latest"
    """The images' tag."""

    ends_with_driver: bool = False
    """Sandboxes end with the driver's process and are deleted when it closes."""

    start_timeout: float = Field(default=60.0, gt=0)
    """Seconds that a sandbox's agent may take until it listens."""

    scratch_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """The size of each of a sandbox's file systems in memory: /tmp, /dev/shm and its home."""

    readonly_mounts: dict[str, str] = Field(default_factory=dict)
    """What every sandbox sees of the host besides, read-only: paths there by paths of the host."""

    workspace_roots: tuple[str, ...] = ()
    """The directories of the host that workspaces of sandboxes may be in."""

    own_workspaces: bool = False
    """Without roots, any directory of the driver's own user may be a workspace: the mesh is a program's own."""

    snapshot_bytes: int = Field(default=DEFAULT_BYTES, gt=0)
    """The most bytes that a snapshot may have."""

    egress: EgressSettings = EgressSettings()
    """What sandboxes may reach at all, and how; images are built with the same package indexes and proxy."""

    @property
    def kind(self) -> Kind:
        """What is the driver's own."""
        return KINDS[self.driver]

    @property
    def socket(self) -> Path | None:
        """The engine's socket, as the system says where it is; None where it is asked over TCP."""
        return Path(self.url.removeprefix("unix://")).resolve() if self.url.startswith("unix://") else None

    @property
    def shown(self) -> list[tuple[Path, str]]:
        """What sandboxes see of the host besides, with the places inside.

        Raises:
            InvalidArgument: One is not there, holds the engine's socket, or may not be where it is wanted.
        """
        return granted(self.readonly_mounts, self.socket)

    @property
    def workspace_rules(self) -> Rules:
        """Which directories of the host may be workspaces."""
        own = self.own_workspaces and not self.workspace_roots
        return Rules(self.paths, self.workspace_roots, own, USER_ID, [self.socket] if self.socket else [])

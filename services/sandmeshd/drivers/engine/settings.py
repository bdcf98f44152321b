"""Settings of the drivers over a Docker engine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, ByteSize, Field

from sandmeshd.drivers.engine.reach.links import PORTS, AgentAccess, LinkChoice, check_address, check_ports
from sandmeshd.drivers.engine.runtimes import DOCKER, RuntimeProfile
from sandmeshd.drivers.node.agent_config import USER_ID
from sandmeshd.drivers.node.images.policy import ImageSandboxSettings
from sandmeshd.drivers.node.mounts.host_directories import Rules
from sandmeshd.drivers.node.mounts.host_files import granted

DEFAULT_URL = "unix:///var/run/docker.sock"

INSTALL = "install Docker (https://docs.docker.com/engine/install/) and start it"
START = "start it (systemctl start docker, or service docker start)"
FULL = "free space where the engine keeps its data (docker system df says what takes it)"
LEAST_MEMORY = ByteSize(128 << 20)
SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where an engine is installed, which an ordinary user's PATH often lacks."""


def check_memory(value: ByteSize) -> ByteSize:
    """Return a memory limit that holds an agent with a kernel; 0 stands for none.

    Raises:
        ValueError: It is too small.
    """
    if 0 < value < LEAST_MEMORY:
        raise ValueError(f"{value} bytes hold no sandbox: set at least {LEAST_MEMORY.human_readable()}, or 0 for none")
    return value


class DockerSettings(ImageSandboxSettings):
    """Settings of the docker driver of one mesh on one node, and of drivers on its engine with another runtime."""

    profile: ClassVar[RuntimeProfile] = DOCKER
    """What is the driver's own."""

    url: str = Field(default=DEFAULT_URL, validation_alias="SANDMESH_DOCKER_URL")
    """The Docker engine, as unix:///path or tcp://host:port; by default DOCKER_HOST's."""

    certificates: Path | None = Field(default=None, validation_alias="SANDMESH_DOCKER_CERTIFICATES")
    """A folder with ca.pem, cert.pem and key.pem for it; by default DOCKER_CERT_PATH where DOCKER_TLS_VERIFY is set."""

    agent_link: LinkChoice = Field(default="auto", validation_alias="SANDMESH_DOCKER_AGENT_LINK")
    """How agents are reached: by a socket in a shared directory, a network of this machine, or a published port."""

    publish_address: Annotated[str, AfterValidator(check_address)] = Field(
        default="", validation_alias="SANDMESH_DOCKER_PUBLISH_ADDRESS"
    )
    """The one address of the engine's machine that agents' ports are published on; none: no port is published."""

    agent_ports: Annotated[tuple[int, int], AfterValidator(check_ports)] = Field(
        default=PORTS, validation_alias="SANDMESH_DOCKER_AGENT_PORTS"
    )
    """First and last of those ports, each of which is leased to one sandbox at a time."""

    link: AgentAccess = AgentAccess()
    """How agents are reached, as `open_driver` finds it out."""

    registry: str = Field(default="", validation_alias="SANDMESH_REGISTRY")
    """The registry that images are pulled from; none: they are built here."""

    namespace: str = Field(default="sandmesh", validation_alias="SANDMESH_IMAGE_NAMESPACE")
    """The namespace of images: what precedes their names."""

    tag: str = Field(default="latest", validation_alias="SANDMESH_IMAGE_TAG")
    """The tag of images."""

    node: bool = Field(default=False, validation_alias="SANDMESH_IMAGE_NODE")
    """Whether all sandboxes of the built-in images have Node.js and uv (npx, uvx): the image base-node."""

    default_memory: Annotated[ByteSize, AfterValidator(check_memory)] = Field(
        default=ByteSize(4 << 30), validation_alias="SANDMESH_DOCKER_DEFAULT_MEMORY"
    )
    """The memory of a sandbox whose creator states none; at most half of the machine's is used for it. 0: no bound."""

    start_timeout: float = Field(default=60.0, gt=0)
    """Seconds that a sandbox's agent may take until it listens."""

    scratch_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """The size of each of a sandbox's file systems in memory: /tmp, /dev/shm and its home."""

    @property
    def socket(self) -> Path | None:
        """The engine's socket, as the system says where it is; None where it is asked over TCP."""
        return Path(self.url.removeprefix("unix://")).resolve() if self.url.startswith("unix://") else None

    @property
    def host_mounts(self) -> list[tuple[Path, str]]:
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

    @property
    def volumes_uid(self) -> int:
        """The uid of user code in containers."""
        return USER_ID


def how_to_start(url: str, programs: str = "") -> str:
    """Return the fix for an engine that does not answer at a URL: how it is started, or installed where it is not.

    `programs` are the directories where its program is looked for, by default those of the system.
    """
    other = "or set SANDMESH_DOCKER_URL to the address of one that runs"
    if not url.startswith("unix://"):
        return f"start it on its machine so that it listens there, {other}"
    programs = programs or f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PROGRAMS}"
    start = START if shutil.which("dockerd", path=programs) else INSTALL
    return f"{start} so that it listens at {url.removeprefix('unix://')}, {other}"

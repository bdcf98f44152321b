"""What a mesh in one process can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, Field, PositiveInt, SecretStr, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sandmeshd.auth.service_identity import SHORTEST
from sandmeshd.drivers.egress import EgressSettings, PackageIndexes
from sandmeshd.drivers.engine.links import PORTS, LinkChoice, check_address, check_ports
from sandmeshd.drivers.snapshots import DEFAULT_BYTES
from sandmeshd.mesh.storage import read_storage
from sandmeshd.runtime.paths import LOCAL_NODE, MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.storage import StorageSettings

SHORTEST_IDLE = 5.0


class MeshSettings(BaseSettings):
    """Settings of a whole mesh; each service's own are made from them."""

    model_config = SettingsConfigDict(
        env_prefix="SANDMESH_", extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what is given and nothing else: only the command line reads the environment."""
        return (init_settings,)

    mesh_id: str = Field(default="local", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """The mesh's name; sandboxes and records of another are never touched."""

    state_directory: Path = Field(default_factory=default_state_directory)
    """Where state and built environments are kept."""

    runtime_directory: Path = Field(default_factory=default_runtime_directory)
    """Where sockets are; short, because a socket's path holds 107 bytes."""

    workspaces_directory: Path | None = None
    """Where bubblewrap's sandboxes have their folders and workspaces; none: below the state directory, relative too."""

    driver: str = "bubblewrap"
    """What sandboxes are made by: bubblewrap, docker or gvisor."""

    listen: tuple[str, ...] = ()
    """Addresses beside the mesh's unix socket, as host:port; beyond loopback only with TLS and tokens."""

    http_listen: tuple[str, ...] = ("127.0.0.1:0",)
    """Addresses for HTTP (health, ports of sandboxes) as host:port, loopback only; port 0 takes a free one."""

    http_url: str | None = None
    """Where clients reach the HTTP listener when that is not its address, as https://host behind a TLS proxy."""

    ports_domain: str | None = None
    """A domain whose every name leads to the HTTP listener: exposed ports are then names of it, each its own origin."""

    bearer_token: SecretStr | None = None
    """One token that clients may show, beside those of `sandmesh token`."""

    bearer_user: str = ""
    """The user that the bearer token stands for; empty: an administrator."""

    require_token: bool | None = None
    """Whether clients on TCP must show a token; none: where there is TLS, a bearer token or an open address."""

    token_cache_seconds: float = Field(default=10.0, gt=0)
    """How long the gateway takes a token that was checked without asking again; revocations are told at once."""

    tls_cert: Path | None = None
    """The certificate of the gateway's TCP addresses, with its chain, in PEM."""

    tls_key: Path | None = None
    """The certificate's key, in PEM."""

    allow_insecure: bool = False
    """Listen beyond loopback all the same where TLS is not there, or tokens are not asked for."""

    mesh_secret: SecretStr | None = Field(default=None, min_length=SHORTEST)
    """What the services of a mesh prove to each other that they are of it; none: one kept in the state directory."""

    redis_url: SecretStr | None = None
    """A Redis or Valkey server (redis://, rediss://, unix://); none: an embedded one."""

    node_id: str = Field(default=LOCAL_NODE, pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """The node that a driver is; each driver of a mesh is another."""

    node_grace_seconds: float = Field(default=60.0, ge=5)
    """After how long of silence the sandboxes of a node count as lost."""

    event_seconds: int = Field(default=3600, ge=1)
    """How long a deleted sandbox is remembered, with its events."""

    workers: int = Field(default=1, ge=1, le=64)
    """How many processes serve the addresses of `listen`; more than one share their ports."""

    port_range: tuple[int, int] | None = None
    """First and last of the ports that HTTP listens at one of, where `http_listen` states port 0, as [49152, 59152]."""

    idle_seconds: float = Field(default=0.0, ge=0)
    """How long a sandbox may be unused whose claim states no time; 0: for as long as its lease lasts."""

    @field_validator("idle_seconds")
    @classmethod
    def _not_too_short(cls, seconds: float) -> float:
        # Use is reported every few seconds: a shorter time would end sandboxes that are in use.
        if 0 < seconds < SHORTEST_IDLE:
            raise ValueError(f"it is 0, for none, or at least {SHORTEST_IDLE:g} seconds")
        return seconds

    sweep_seconds: float = Field(default=1.0, gt=0)
    """How often leases and idle times that ran out are looked for."""

    owner_grace_seconds: float = Field(default=10.0, gt=0)
    """After how long of silence an allocator counts as dead, and another goes on with what it began."""

    readonly_mounts: dict[str, str] = Field(default_factory=dict)
    """Files and directories of the host that every sandbox sees read-only, by where, as {"/opt/data": "/data"}."""

    workspace_roots: tuple[str, ...] = ()
    """Directories of the host that sandboxes may be given as workspaces, or what is below them, as ["/srv/data"]."""

    max_sandboxes: int = Field(default=100, ge=1, le=100_000)
    """The most sandboxes that exist at once, pools included."""

    max_sandboxes_per_user: int = Field(default=0, ge=0)
    """The most sandboxes that one user holds at once; 0: no bound of its own. All anonymous sessions are one user."""

    max_sandboxes_per_node: int = Field(default=0, ge=0)
    """The most sandboxes on one node; 0: no bound of its own."""

    node_capacities: dict[str, PositiveInt] = Field(default_factory=dict)
    """The same for single nodes, by node id."""

    template_capacities: dict[str, PositiveInt] = Field(default_factory=dict)
    """The most sandboxes of a template, where it has a bound of its own."""

    pools: dict[str, int] = Field(default_factory=dict)
    """How many sandboxes of a template are kept ready and unused."""

    extensions: tuple[str, ...] = ()
    """Python files and modules that register classes of sandboxes; they run in the mesh when it starts."""

    templates: tuple[Path, ...] = ()
    """YAML and TOML files, each a template."""

    lease_seconds: float = Field(default=3600.0, gt=0)
    """How long a lease lasts that states no time and is not renewed."""

    queue_seconds: float = Field(default=30.0, ge=0)
    """How long a request waits in a full mesh when its caller states no deadline."""

    sandbox_uid: int = Field(default=65432, ge=1, le=65535)
    """The uid of sandboxes' processes on the host where the mesh runs as root."""

    python: Path | None = None
    """The interpreter of templates; none: the mesh's own where sandboxes can read it, else the system's."""

    bubblewrap_way: Literal["auto", "fork", "exec"] = "auto"
    """How bubblewrap starts sandboxes: forked from a zygote, by a bwrap each, or (auto) forked where that works."""

    docker_url: str = "unix:///var/run/docker.sock"
    """The docker engine, as unix:///path or tcp://host:port; by default DOCKER_HOST's."""

    docker_agent_link: LinkChoice = "auto"
    """How agents are reached: by a socket in a shared directory, a network of this machine, or a published port."""

    docker_publish_address: Annotated[str, AfterValidator(check_address)] = ""
    """The one address of the engine's machine that agents' ports are published on; none: no port is published."""

    docker_agent_ports: Annotated[tuple[int, int], AfterValidator(check_ports)] = PORTS
    """First and last of those ports, each of which is leased to one sandbox at a time."""

    docker_certificates: Path | None = None
    """A folder with ca.pem, cert.pem and key.pem for it; by default DOCKER_CERT_PATH where DOCKER_TLS_VERIFY is set."""

    registry: str = ""
    """The registry that the docker driver pulls its images from; none: they are built here."""

    image_namespace: str = "sandmesh"
    """What comes before an image's name."""

    image_tag: str = "latest"
    """The tag of images."""

    log_level: str = Field(default="INFO", pattern=r"(?i)^(DEBUG|INFO|WARNING|ERROR)$")
    """The least severe events that are logged."""

    log_format: Literal["auto", "json", "text"] = "auto"
    """How log lines are written: json, text, or auto: text on a terminal and json elsewhere."""

    keep_sandboxes: bool = True
    """Sandboxes outlive the mesh's orderly end, for the next start; pools too."""

    ephemeral: bool = False
    """The mesh is one program's own: its sandboxes end with it and nothing of it is kept."""

    egress_private: Literal["named", "never"] = "named"
    """Whether a grant may name hosts with private addresses; `never` keeps users out of the node's own network."""

    egress_proxy: SecretStr | None = None
    """The proxy that the node needs to reach others, as http://[user:password@]host:port; by default HTTPS_PROXY's."""

    egress_no_proxy: str = ""
    """Hosts that the node reaches without that proxy, separated by commas; by default NO_PROXY's."""

    pip_index_url: str = ""
    """The index that the grant `packages` names; by default the one that pip is configured with here."""

    pip_extra_index_urls: tuple[str, ...] = ()
    """Further ones, as a JSON list; by default those that pip is configured with here."""

    npm_registry: str = ""
    """The npm registry that the grant `packages` names; by default the one that npm is configured with here."""

    file_system: Literal["", "local", "s3", "oss", "gcs", "azblob"] = ""
    """Where sessions' workspaces are saved for their return; empty: nowhere, or local where storage_folder is given."""

    storage_folder: Path | None = None
    """The directory that they are saved in, or a prefix in the bucket; the mesh's id goes below it."""

    storage_bucket: str = ""
    """The bucket, or for azblob the container."""

    storage_endpoint: str = ""
    """The address of the object storage, where it is not the service's own."""

    storage_region: str = ""
    """The bucket's region, for s3."""

    storage_key_id: SecretStr | None = None
    """The access key's id, or for azblob the account's name."""

    storage_key_secret: SecretStr | None = None
    """The access key's secret, or for gcs the credential in base64."""

    storage_limit: ByteSize = ByteSize(2 << 30)
    """The largest workspace that is saved, as 2GiB; one that is larger stays in its sandbox until this is raised."""

    snapshot_limit: ByteSize = ByteSize(DEFAULT_BYTES)
    """The largest snapshot that is taken, as 2GiB."""

    @property
    def storage(self) -> StorageSettings | None:
        """The settings of the storage of workspaces, None where there is none.

        Raises:
            InvalidArgument: They do not fit together.
        """
        return read_storage(self)

    @property
    def egress(self) -> EgressSettings:
        """The settings of the driver's egress."""
        indexes = PackageIndexes(pip=self.pip_index_url, pip_extra=self.pip_extra_index_urls, npm=self.npm_registry)
        proxy = self.egress_proxy if self.egress_proxy and self.egress_proxy.get_secret_value() else None
        return EgressSettings(private=self.egress_private, proxy=proxy, no_proxy=self.egress_no_proxy, indexes=indexes)

    @property
    def paths(self) -> MeshPaths:
        """The mesh's directories."""
        workspaces = None if self.workspaces_directory is None else self.state_directory / self.workspaces_directory
        return MeshPaths(self.mesh_id, self.state_directory, self.runtime_directory, self.node_id, workspaces)

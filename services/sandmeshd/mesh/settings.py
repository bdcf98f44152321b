"""Settings of a whole mesh: its own, and nested in them those of its services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from sandmesh.errors import InvalidArgument
from sandmeshd.allocator import AllocatorSettings
from sandmeshd.auth.service_identity import SHORTEST, kept_secret
from sandmeshd.drivers.api.registry import driver_variables
from sandmeshd.facades.registry import door_variables
from sandmeshd.gateway import GatewaySettings
from sandmeshd.images.settings import ImageSettings
from sandmeshd.runtime.paths import LOCAL_NODE, MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.runtime.setting_types import StoreUrl
from sandmeshd.runtime.settings import PREFIX, Settings, Variable, nested, variables_of
from sandmeshd.storage import StorageSettings
from sandmeshd.store import StoreSettings


class MeshSettings(Settings):
    """Settings of a whole mesh.

    A value is taken by its path, or by its setting's name: `lease_seconds` for SANDMESH_LEASE_SECONDS, wherever it is
    nested.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX)

    mesh_id: str = Field(default="local", pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """The mesh's name; sandboxes and records of another are never touched."""

    state_directory: Path = Field(default_factory=default_state_directory)
    """Where state and built environments are kept."""

    runtime_directory: Path = Field(default_factory=default_runtime_directory)
    """Where sockets are; short, because a socket's path holds 107 bytes."""

    workspaces_directory: Path | None = None
    """Where bubblewrap's sandboxes have their folders and workspaces; none: below the state directory, relative too."""

    driver: str = "bubblewrap"
    """The driver that makes sandboxes: bubblewrap, docker, gvisor, kubernetes, or one that another package installs."""

    node_id: str = Field(default=LOCAL_NODE, pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """The node that a driver is; each driver of a mesh is another."""

    mesh_secret: SecretStr | None = Field(default=None, min_length=SHORTEST)
    """The secret by which the services of a mesh authenticate each other; none: one kept in the state directory."""

    audit_entries: int = Field(default=10_000, ge=100)
    """About how many entries of the audit the store keeps."""

    redis_url: StoreUrl | None = None
    """A Redis or Valkey server (redis://, rediss://, unix://); none: an embedded one."""

    workers: int = Field(default=1, ge=1, le=64)
    """How many processes serve the addresses of `listen`; more than one share their ports."""

    extensions: tuple[str, ...] = ()
    """Python files and modules that register classes of sandboxes; they run in the mesh when it starts."""

    templates: tuple[Path, ...] = ()
    """YAML and TOML files, each a template."""

    log_level: str = Field(default="INFO", pattern=r"(?i)^(DEBUG|INFO|WARNING|ERROR)$")
    """The least severe events that are logged."""

    log_format: Literal["auto", "json", "text"] = "auto"
    """How log lines are written: json, text, or auto: text on a terminal and json elsewhere."""

    traces_per_second: float = Field(default=100.0, ge=1)
    """Where traces are recorded: how many a second callers may have recorded by asking for it; others are sampled."""

    keep_sandboxes: bool = True
    """Sandboxes outlive the mesh's orderly end, for the next start; pools too."""

    ephemeral: bool = False
    """The mesh is one program's own: its sandboxes end with it and nothing of it is kept."""

    gateway: GatewaySettings = GatewaySettings()
    allocator: AllocatorSettings = AllocatorSettings()
    workspaces: StorageSettings = StorageSettings()
    image_store: ImageSettings = ImageSettings()

    drivers: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """Values of the drivers' settings by variable; a driver's own class checks them."""

    doors: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """Values of the doors' settings by variable; a door's own class checks them."""

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, values: Any) -> Any:
        return _nested(cls, cast("dict[str, Any]", values)) if isinstance(values, dict) else values

    @property
    def paths(self) -> MeshPaths:
        """The mesh's directories."""
        workspaces = None if self.workspaces_directory is None else self.state_directory / self.workspaces_directory
        return MeshPaths(self.mesh_id, self.state_directory, self.runtime_directory, self.node_id, workspaces)

    @property
    def store(self) -> StoreSettings:
        """The settings of the store: an external server's, or those of one of the mesh's own."""
        if self.redis_url is not None:
            return StoreSettings(mesh_id=self.mesh_id, url=self.redis_url)
        return StoreSettings(
            mesh_id=self.mesh_id,
            directory=self.paths.store,
            socket=self.paths.services / "r",
            outlives_machine=not self.ephemeral,
        )

    @property
    def storage(self) -> StorageSettings | None:
        """The settings of the storage of workspaces, None where they are not saved.

        Raises:
            InvalidArgument: They contradict each other; the message names the variable.
        """
        chosen = self.workspaces
        service = chosen.service or ("local" if chosen.folder is not None else "")
        if not service:
            _check_unused(chosen)
            return None
        if service == "local" and chosen.folder is None:
            return None
        root = self.state_directory.absolute() if service == "local" else Path("/")
        folder = root / (chosen.folder or Path()) / self.mesh_id
        return chosen.model_copy(update={"service": service, "folder": folder})

    def values(self) -> dict[str, Any]:
        """Return every value by its setting's name, those of drivers and doors only where they are set."""
        own = {variable.setting: variable.read(self) for variable in variables_of(type(self)).values()}
        plugins = self.drivers | self.doors
        return own | {name.removeprefix(PREFIX).lower(): value for name, value in plugins.items()}

    def replaced(self, **values: object) -> MeshSettings:
        """Return the settings with other values, by their settings' names."""
        return MeshSettings.model_validate({**self.values(), **values})


def all_variables() -> dict[str, Variable]:
    """Return the variables of a mesh, and of all drivers and doors that are installed, by name."""
    return driver_variables() | variables_of(MeshSettings) | door_variables()


def _nested(cls: type[MeshSettings], values: Mapping[str, Any]) -> dict[str, Any]:
    own, of_drivers, of_doors = variables_of(cls), driver_variables(), door_variables()
    by_path = {name: value for name, value in values.items() if name in cls.model_fields}
    variables = {f"{PREFIX}{name.upper()}": name for name in values if name not in cls.model_fields}
    known = own | of_drivers | of_doors
    unknown = {name: values[name] for variable, name in variables.items() if variable not in known}
    by_name = {variable: values[name] for variable, name in variables.items() if variable in own}
    plugins = {
        field: by_path.get(field, {}) | {one: values[name] for one, name in variables.items() if one in those}
        for field, those in (("drivers", of_drivers), ("doors", of_doors))
    }
    return {**by_path, **nested(by_name, own), **unknown, **plugins}


def _check_unused(storage: StorageSettings) -> None:
    unused = next((name for name in ("bucket", "endpoint", "region") if getattr(storage, name)), None)
    if unused is not None:
        name = f"SANDMESH_STORAGE_{unused.upper()}"
        raise InvalidArgument(f"{name} says where workspaces are saved, but not in what: give SANDMESH_FILE_SYSTEM")


def mesh_secret(settings: MeshSettings) -> str:
    """Return the secret that the mesh's services share: the configured one, else the one kept with its state."""
    explicit = settings.mesh_secret
    return explicit.get_secret_value() if explicit else kept_secret(settings.paths.secret)

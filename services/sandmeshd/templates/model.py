"""The model of templates."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

PackageName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]{1,127}$")]
EnvironmentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
NodePackage = Annotated[str, Field(pattern=r"^(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*@[0-9][0-9A-Za-z.+-]*$")]
ScratchDirectory = Annotated[str, Field(pattern=r"^/[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$")]
MOST_SCRATCH = 8
_TOP = ("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc", "root", "run", "sbin")
TAKEN = frozenset(f"/{name}" for name in (*_TOP, "sys", "tmp", "usr", "var", "workspace"))
"""Directories at the root of every sandbox, which no template takes."""
WITH_PROGRAMS = "-node"
"""How the name of an image ends that has the programs of its template's environment: `base-node`."""
PROGRAMS = frozenset({"node", "npm", "npx", "uv", "uvx"})


class PythonEnvironment(BaseModel):
    """The Python packages of user code."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    requirements: tuple[str, ...]
    """As pip takes them, each pinned."""

    programs: tuple[str, ...] = ()
    """Packages of programs beside Python, such as Node.js, likewise; of images only `base-node` has them."""

    fonts: tuple[str, ...] = ()
    """Packages of fonts, likewise; images have them on top of `base`, whose size they would exceed."""

    complete: bool = False
    """Whether `requirements` has all that is installed: packages' own dependencies are not looked up."""

    warm_up: str = ""
    """A statement that fills caches when the environment is built, run as code of a sandbox is."""

    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables that user code gets because of these packages."""

    @property
    def packages(self) -> tuple[str, ...]:
        """All packages, those of programs last."""
        return (*self.requirements, *self.fonts, *self.programs)


class TemplateLimits(BaseModel):
    """The most that a sandbox may have, and its default where a request names no limit; 0: unlimited."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    memory_bytes: int = Field(default=0, ge=0)
    """All processes together."""

    cpu_millis: int = Field(default=0, ge=0)
    """Processor time, in thousandths of a core."""

    pids: int = Field(default=0, ge=0)
    """Processes and threads."""

    file_bytes: int = Field(default=0, ge=0)
    """The largest single file."""

    disk_bytes: int = Field(default=0, ge=0)
    """The workspace."""


class OwnTool(BaseModel):
    """A tool of a template's own: a Python function that runs inside its sandboxes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")
    """The function's name."""

    description: str = ""
    """What it does, for a model."""

    input_schema: str = "{}"
    """The JSON Schema of its parameters, as JSON."""

    source: str = Field(min_length=1, max_length=262_144)
    """Its source, whole."""


class TrainingEnvironment(BaseModel):
    """A training environment: a class that is served inside the sandboxes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    target: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$")
    """The class, as "module:Class"."""

    source: str = Field(default="", max_length=262_144)
    """The source of the module; empty: the module is installed in the template's Python."""


class Template(BaseModel):
    """A template of sandboxes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    """The name that requests use."""

    description: str
    """What it is for, in a sentence."""

    tool_groups: tuple[str, ...] = Field(min_length=1)
    """Groups of tools that its agent offers."""

    python: PythonEnvironment
    """Its Python."""

    system: tuple[PackageName, ...] = ()
    """Debian packages that its sandboxes have besides those of every sandbox."""

    node_packages: tuple[NodePackage, ...] = ()
    """Packages of npm that its sandboxes have in `/opt/node/node_modules`, each pinned, as "opencode-ai@1.18.33"."""

    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables of user code, on top of those of `python`."""

    user: str = Field(default="", pattern=r"^([a-z][a-z0-9_-]{0,31})?$")
    """The name of user code's user, whose home is then the workspace; empty for `sandbox` with a home in memory."""

    network: Literal["none", "public", "packages"] | tuple[str, ...] = "none"
    """What a sandbox may reach where a request names no network: one word, or hosts and perhaps "public"."""

    mcp_config: str = ""
    """MCP servers that its sandboxes have, as JSON with `mcpServers`; empty for none."""

    image: str = ""
    """The image of its sandboxes; empty: built from `python`."""

    image_is_shipped: bool = True
    """Whether the image is named like a shipped template's, whose environment `python` then is."""

    limits: TemplateLimits = TemplateLimits()
    """The most that a sandbox may have, and its default."""

    security_level: Literal["low", "medium", "high"] = "medium"
    """High: a sandbox reaches nothing beyond `network`, whatever a request names."""

    call_seconds: float | None = Field(default=None, gt=0)
    """The longest that a call of a tool runs; None: as long as its request allows."""

    runtime_config: dict[str, str] = Field(default_factory=dict)
    """Settings of one runtime, by its own names, as JSON each; a driver refuses those that it does not know."""

    tools: tuple[OwnTool, ...] = ()
    """Its tools: Python functions."""

    on_demand: bool = False
    """Whether it is made ready by its first sandbox, or by `sandmesh build`, and not by every start of a mesh."""

    environments: dict[EnvironmentName, TrainingEnvironment] = Field(default_factory=dict)
    """Training environments by name."""

    data: str = Field(default="", pattern=r"^[a-z0-9_-]*$")
    """Data of its environments that the administrator gives (`sandmesh training prepare`), by name; empty for none."""

    root: bool | None = None
    """Whether its sandboxes' processes are root in their image where a request does not say; None: as its USER says."""

    scratch: tuple[ScratchDirectory, ...] = Field(default=(), max_length=MOST_SCRATCH)
    """Directories at the root where each of its sandboxes has its own file system in memory."""

    idle_timeout: float | None = Field(default=None, gt=0)
    """Seconds without a use after which `on_idle` is done where a request has none; None: the mesh's default."""

    on_idle: Literal["release", "pause"] | None = None
    """What is done then where a request does not say; None: the mesh's default."""

    @model_validator(mode="after")
    def _check_idle(self) -> Self:
        if self.on_idle is not None and self.idle_timeout is None:
            raise ValueError("on_idle needs an idle_timeout")
        return self

    @property
    def needs_programs(self) -> bool:
        """Whether its image is to have its environment's programs: by the image's name, or for its MCP servers."""
        return is_with_programs(self.image) or not PROGRAMS.isdisjoint(_commands(self.mcp_config))

    @property
    def generation(self) -> str:
        """A hash that changes with anything in the template."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


def image_stem(image: str) -> str:
    """Return the last part of an image's name, without registry, namespace, tag and digest."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0]


def is_with_programs(image: str) -> bool:
    """Return whether an image's name is that of one with Node.js and uv."""
    return image_stem(image).endswith(WITH_PROGRAMS)


def _commands(mcp_config: str) -> set[str]:
    """Return the programs that start a template's MCP servers; the configuration was checked when it was read."""
    servers: dict[str, dict[str, str]] = json.loads(mcp_config)["mcpServers"] if mcp_config else {}
    return {server.get("command", "").rpartition("/")[2] for server in servers.values()}

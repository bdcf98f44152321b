"""What a build is to do, and what it says meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandmeshd.images.builds.context import Context


@dataclass(frozen=True)
class MountedSecret:
    """A secret that commands may see: in a file, or as a variable."""

    value: str


@dataclass(frozen=True)
class ImageBuildOptions:
    """A build."""

    dockerfile: bytes
    context: Context
    contexts: Mapping[str, Context] = field(default_factory=dict[str, Context])
    """Other directories, by the names that `--from` has."""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, MountedSecret] = field(default_factory=dict[str, MountedSecret])
    network: tuple[str, ...] = ("packages",)
    """What commands may reach, as a sandbox's grant has it; empty: nothing."""
    target: str = ""
    """The stage that is the image; empty: the last."""
    cached: bool = True
    """Whether steps that were carried out before are taken from the cache."""
    pull: bool = False
    """Whether base images are looked up in their registries though they are here."""
    only_public: bool = False
    """Whether the hosts that commands may reach must have public addresses."""
    owner: str = ""
    """Whose image it is, where it gets no name for all."""
    private: bool = False
    """Whether bases are pulled with credentials of the owner's, and so are for no one else."""
    check_pull: Callable[[str], None] = lambda name: None
    """Raises PermissionDenied for an image that may not be pulled."""


@dataclass
class Report:
    """Takes what a build does: lines for people."""

    line: Callable[[str], None] = lambda line: None
    """A step begins, or an image is pulled."""
    output: Callable[[str], None] = lambda line: None
    """A command has written a line."""


@dataclass
class Totals:
    """What a build did."""

    steps: int = 0
    """RUN, COPY and ADD, of all stages that were needed."""
    cached: int = 0
    """Those of them that were carried out before."""
    written: int = 0
    """The bytes of new layers, compressed."""

"""What carries out the steps of builds: a driver's, since a step runs in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class ImageStep:
    """A step in an image's root, as `sandmeshd.agent.boot.build_step.step` takes it."""

    layers: tuple[Path, ...]
    """Of the image that it changes, lowest first."""
    directories: tuple[str, ...] = ()
    """Are made first."""
    copy: Mapping[str, Any] | None = None
    command: Mapping[str, Any] | None = None
    images: tuple[tuple[Path, ...], ...] = ()
    """The layers of other images, which it reads."""
    caches: tuple[Path, ...] = ()
    """Directories that outlive the step."""
    network: tuple[str, ...] = ()
    """What its command may reach, as a sandbox's grant has it; empty: nothing."""
    only_public: bool = False
    """Whether the hosts among it must have public addresses."""
    input: Path | None = None
    """The tar of files that it takes."""


class Sink(Protocol):
    """Takes the tar of a layer."""

    def write(self, data: bytes, /) -> int:
        """Take a part."""
        ...


Output = Callable[[bytes], None]
"""Takes what a command writes."""


@dataclass
class StepOutcome:
    """How a step ended."""

    code: int
    refused: Sequence[str] = field(default_factory=tuple[str, ...])
    """What its command could not reach, with the fix."""


class Runner(Protocol):
    """Carries out steps."""

    async def run(self, step: ImageStep, folder: Path, layer: Sink, output: Output) -> StepOutcome:
        """Carry out a step in an empty folder, and write what changed to `layer`, as a tar.

        Raises:
            InvalidArgument: It cannot be done as it says, as with files that are not there.
            CapabilityMissing: This machine has no sandboxes with images.
            SandboxStartFailed: Its sandbox did not start.
            RuntimeUnavailable: The disk is full.
        """
        ...

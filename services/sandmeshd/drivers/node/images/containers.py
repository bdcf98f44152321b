"""What containers and pods have alike whose image has no agent of sandmesh in it."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.node.agent_config import AGENT, USER, WORKSPACE
from sandmeshd.drivers.node.images.policy import is_root, tier_of
from sandmeshd.drivers.node.images.process import KERNELS, describe_kernels, directory_of
from sandmeshd.drivers.snapshots.snapshots import IMAGE
from sandmeshd.images.image import ImageConfig

_ETC: Final = {"hostname": f"{USER}\n", "resolv.conf": ""}
"""What images get below /etc where they lack it; the runtime mounts the rest."""
_ROOT: Final = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("NET_BIND_SERVICE", "SYS_CHROOT", "AUDIT_WRITE"),
)
"""The capabilities of root inside: see `sandmeshd.agent.userland.core.isolation`."""
_USER: Final = ("KILL", "SETGID", "SETUID", "SETPCAP", "CHOWN", "DAC_OVERRIDE")
"""Those that the agent starts with where user code is not root; it gives up the last three."""
_MOST_VOLUMES: Final = 64
_OURS: Final = tuple(map(PurePosixPath, ("/opt/sandmesh", "/opt/env", "/run/sandmesh")))
"""Where sandboxes have what no image may cover."""


def capabilities_of(config: ImageConfig, root: bool | None) -> tuple[str, ...]:
    """Return the capabilities that the container starts with; `root` is what was requested, None: as USER says."""
    return _ROOT if is_root(config.user, root) else _USER


def agent_command(python: str, directory: str, config: ImageConfig, root: bool | None, processes: int) -> list[str]:
    """Return the command of PID 1: the agent by its own Python, with what it must know of the image at its start."""
    entry = {
        "user": config.user,
        "root": root,
        "may_be_root": is_root(config.user, root),
        "owned": [WORKSPACE],
        "processes": processes,
        "etc": _ETC,
        "working_directory": directory_of(config),
    }
    return [python, "-I", "-S", AGENT, "--container", directory, "--image", json.dumps(entry)]


def describe_root(image: str, config: ImageConfig, root: bool | None, layer: str, ids: str) -> dict[str, str]:
    """Return what is known of a sandbox's root, for people.

    `layer` is whose the writable layer is; `ids` is what uid 0 inside is outside.
    """
    tier = tier_of(config.user, root)
    shown = ids if is_root(config.user, root) else ""
    parts = [tier, f"writable, {layer}", "set-uid programs are ordinary ones", shown]
    return {
        IMAGE: image,
        KERNELS: describe_kernels(),
        "root": "; ".join(part for part in parts if part),
        "user": tier,
        "capabilities": "Docker's without MKNOD, NET_RAW and SETFCAP" if shown else "none",
    }


def check_volumes(reference: str, config: ImageConfig) -> None:
    """Check that no directory that an image declares would cover what the agent has inside.

    Raises:
        InvalidArgument: One would, or there are too many.
    """
    places = [PurePosixPath("/", volume) for volume in config.volumes]
    covering = [
        str(place) for place in places if ".." in place.parts or any(place.is_relative_to(own) for own in _OURS)
    ]
    if covering or len(places) > _MOST_VOLUMES:
        what = f"a VOLUME at {covering[0]}, where the agent is" if covering else f"more than {_MOST_VOLUMES} of VOLUME"
        raise InvalidArgument(f"the image {reference} has {what}: no sandbox can have it", {"field": "spec.image"})

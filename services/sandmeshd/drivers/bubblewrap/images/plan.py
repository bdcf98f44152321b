"""What a sandbox whose root is an image is made of, however it is started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmeshd.drivers.bubblewrap.arguments import SOCKETS, Mounts
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRange
from sandmeshd.drivers.bubblewrap.starts.exec_start import Plan
from sandmeshd.drivers.node.agent_config import AGENT, MCP, USER, WORKSPACE
from sandmeshd.drivers.node.images.process import KERNELS, describe_kernels
from sandmeshd.drivers.node.records import Folder

Binds = list[tuple[str, str, bool]]
"""Directories of the host: source, place inside, and whether it can be written."""
CHANGES: Final = f"{SOCKETS}/changes"
"""Where the agent, and no user code, sees what was changed of the image."""
ETC: Final = {"hosts": f"127.0.0.1 localhost {USER}\n::1 localhost\n", "hostname": f"{USER}\n", "resolv.conf": ""}
"""What images get below /etc where they lack it."""
_TEMPORARY: Final = (("/tmp", "1777"),)  # noqa: S108 - inside


@dataclass(frozen=True)
class ImageRoot:
    """The image of one sandbox, and whose it is."""

    layers: tuple[Path, ...]
    """Lowest first."""
    user: str
    """What the image's USER says."""
    root: bool | None
    """Whether user code is to be root; None: as `user` says."""
    working_directory: str
    hold: int
    """The lock that keeps the layers, which the sandbox's processes hold from its start on."""
    may_be_root: bool = True
    """Whether the mesh's administrator allows root inside."""


@dataclass(frozen=True)
class ImagePlan(Plan):
    """One sandbox to be started, whose root is an image."""

    root: ImageRoot | None = None

    @property
    def image(self) -> ImageRoot:
        """The image.

        Raises:
            ValueError: There is none.
        """
        if self.root is None:
            raise ValueError("the plan has no image")
        return self.root


def make_folder(folder: Folder, ids: IdRange) -> None:
    """Make a sandbox's directories on the host, which its root owns; an ordinary user's it takes over itself.

    The directory of the socket stays that user's, and is open to all who can pass the mesh's own.
    """
    folder.root.mkdir()
    folder.root.chmod(0o711)
    is_root = os.geteuid() == 0
    for inner, mode in ((folder.workspace, 0o700), (folder.changes, 0o700), (folder.sockets, 0o777)):
        inner.mkdir(exist_ok=True)
        inner.chmod(0o700 if is_root else mode)
        if is_root:
            os.chown(inner, ids.first, ids.first)


def note_python(plan: ImagePlan, said: dict[str, object]) -> None:
    """Note in a sandbox's record that kernels run by the image's own Python, where its agent says so."""
    if python := said.get("python"):
        plan.record.sandbox.enforced[KERNELS] = describe_kernels(str(python))
        plan.record.write(plan.folder)


def describe_root(
    folder: Folder, root: ImageRoot, mounts: Mounts, maps: dict[str, list[list[int]]], binds: Binds
) -> dict[str, object]:
    """Return what `sandmeshd.agent.boot.image` makes a root of; `binds` are those of its Python."""
    binds = [*binds, *agent_binds(mounts), *((str(path), place, False) for path, place in mounts.data)]
    binds.append((str(folder.sockets), SOCKETS, True))
    # Where that is the image's own directory, it is part of the root, with what the image has there.
    workspace = "" if root.working_directory == WORKSPACE else WORKSPACE
    if workspace and not mounts.disk_bytes:
        binds.append((str(folder.workspace), WORKSPACE, True))
    return {
        "layers": [str(path) for path in root.layers],
        "images": [],
        "images_directory": "",
        "caches": [],
        "map_layers": os.geteuid() == 0,
        "maps": maps,
        "binds": binds,
        "memory": [*_TEMPORARY, *((path, "0755") for path in mounts.scratch)],
        "disk": str(folder.changes),
        "disk_bytes": mounts.disk_bytes,
        "workspace": workspace,
        "changes": CHANGES,
        "working_directory": root.working_directory,
        "etc": ETC,
        "host_name": USER,
        "low_ports": True,
    }


def agent_binds(mounts: Mounts) -> Binds:
    """Return what shows the agent's code."""
    return [(str(mounts.agent), AGENT, False), (str(mounts.mcp), MCP, False)]


def scratch(mounts: Mounts, most: int) -> dict[str, object]:
    """Return how large each file system in memory of a root is; `most` is the settings' word."""
    return {"scratch": min(mounts.scratch_bytes or most, most)}


def describe_entry(root: ImageRoot, processes: int) -> dict[str, object]:
    """Return what `sandmeshd.agent.boot.image.entry` finds user code's account by; at most so many processes run."""
    return {
        "user": root.user,
        "root": root.root,
        "owned": [SOCKETS, WORKSPACE] if os.geteuid() == 0 else [WORKSPACE],
        "processes": processes,
        "may_be_root": root.may_be_root,
    }

"""What differs between the drivers of one engine: containers of its own runtime, and of gVisor's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

KindName = Literal["docker", "gvisor"]

FLAGS: Mapping[str, Sequence[str]] = {
    "memory": ("MemoryLimit",),
    "cpu": ("CpuCfsQuota", "CpuCfsPeriod"),
    "pids": ("PidsLimit",),
}
"""What an engine says of itself, by the limit that needs it."""


@dataclass(frozen=True)
class Kind:
    """A driver over an engine's containers."""

    name: KindName
    """The driver's name."""
    isolation: str
    """The strongest boundary between sandbox and machine, as capabilities have it."""
    system_calls: str
    """What stands before the machine's system calls."""
    runtime: str = ""
    """The engine's runtime of its containers; empty: the engine's default."""
    by_engine: Sequence[str] = ()
    """The limits that hold by the engine's control groups, where it has them."""
    by_itself: Mapping[str, str] = field(default_factory=dict[str, str])
    """The limits that hold whatever the engine has, and how."""
    helpers: Sequence[str] = ()
    """What the processes around a container are called, which a start that failed may leave."""
    tasks: int = 1
    """How many threads of the machine a process inside takes, at most."""
    own_tasks: int = 6
    """How many agent and zygote take, and what runs them."""

    def enforceable(self, info: Mapping[str, Any]) -> dict[str, str]:
        """Give the limits that an engine can enforce, and how."""
        groups = f"docker, cgroup v{info.get('CgroupVersion', '1')}"
        able = {name: groups for name in self.by_engine if all(info.get(flag) for flag in FLAGS[name])}
        return {**self.by_itself, **able}


DOCKER = Kind(
    name="docker",
    isolation="namespaces",
    system_calls="docker's seccomp, and sandmesh's on top",
    by_engine=("memory", "cpu", "pids"),
    by_itself={"file": "rlimit", "disk": "tmpfs"},
)
GVISOR = Kind(
    name="gvisor",
    isolation="user-space kernel",
    system_calls="gVisor's kernel, and sandmesh's seccomp inside",
    runtime="runsc",
    # More memory than a control group has ends gVisor's kernel, and so the sandbox: that is no limit of a command.
    by_engine=("cpu",),
    by_itself={"file": "rlimit", "disk": "tmpfs", "pids": "rlimit"},
    helpers=("runsc-sandbox", "runsc-gofer", "containerd-shim-runc-v2"),
    tasks=12,
    own_tasks=512,
)
KINDS: Mapping[KindName, Kind] = {"docker": DOCKER, "gvisor": GVISOR}

"""What differs between the drivers of one engine: containers of its default runtime, and of gVisor's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

DriverName = Literal["docker", "gvisor"]

FLAGS: Mapping[str, Sequence[str]] = {
    "memory": ("MemoryLimit",),
    "cpu": ("CpuCfsQuota", "CpuCfsPeriod"),
    "pids": ("PidsLimit",),
}
"""The engine's flags that each limit requires."""


@dataclass(frozen=True)
class RuntimeProfile:
    """The container runtime of one driver, and what follows from it."""

    name: DriverName
    """The driver's name."""
    isolation: str
    """The strongest boundary between sandbox and machine, as in the capabilities."""
    system_calls: str
    """What filters the machine's system calls."""
    runtime: str = ""
    """The name of the runtime at the engine; if empty, its default."""
    by_engine: Sequence[str] = ()
    """The limits that the engine enforces by control groups, if it has them."""
    built_in: Mapping[str, str] = field(default_factory=dict[str, str])
    """The limits that hold on every engine, and what enforces them."""
    helpers: Sequence[str] = ()
    """The names of processes around a container that a failed start may leave."""
    tasks: int = 1
    """The most threads of the machine that one process inside takes."""
    own_tasks: int = 6
    """The threads of agent, zygote and the runtime itself."""

    def enforceable(self, info: Mapping[str, Any]) -> dict[str, str]:
        """Return the limits that an engine can enforce, and what enforces each."""
        groups = f"docker, cgroup v{info.get('CgroupVersion', '1')}"
        by_groups = {name: groups for name in self.by_engine if all(info.get(flag) for flag in FLAGS[name])}
        return {**self.built_in, **by_groups}


DOCKER = RuntimeProfile(
    name="docker",
    isolation="namespaces",
    system_calls="docker's seccomp, and sandmesh's on top",
    by_engine=("memory", "cpu", "pids"),
    built_in={"file": "rlimit", "disk": "tmpfs"},
)
GVISOR = RuntimeProfile(
    name="gvisor",
    isolation="user-space kernel",
    system_calls="gVisor's kernel, and sandmesh's seccomp inside",
    runtime="runsc",
    # Beyond a control group's memory limit gVisor's kernel is killed, and the sandbox with it: not a command's limit.
    by_engine=("cpu",),
    built_in={"file": "rlimit", "disk": "tmpfs", "pids": "rlimit"},
    helpers=("runsc-sandbox", "runsc-gofer", "containerd-shim-runc-v2"),
    tasks=12,
    own_tasks=512,
)
PROFILES: Mapping[DriverName, RuntimeProfile] = {"docker": DOCKER, "gvisor": GVISOR}

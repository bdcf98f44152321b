"""Print docs/capabilities.md from what the drivers themselves answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.drivers.bubblewrap import requirements as bubblewrap
from sandmeshd.drivers.engine import requirements as docker
from sandmeshd.drivers.engine.links import Link
from sandmeshd.drivers.engine.runtimes import DOCKER, FLAGS, KINDS

HEAD = """# What each driver can enforce

Made by `python scripts/capabilities_page.py > docs/capabilities.md` from what the drivers answer to `GetInfo`. The
conformance suite holds them to it: what is reported must hold in a real sandbox, and what is not must be refused
(CAPABILITY_MISSING) before anything is made. `make test` runs it on bubblewrap, `make docker-tests` on docker
and gvisor.

"no" is refused where it is stated; every other cell says by what it holds.
"""

TAIL = """
All of it depends on the machine: `GetInfo` says what holds there, and each sandbox's `enforced` what holds in it.
Bubblewrap has the first column where it may write control groups. An engine reports no limit that its kernel lacks.

On gvisor memory is no limit of a command: where a control group has no more of it, gVisor's kernel ends, and with it
the sandbox. The docker driver takes the engine's default runtime, of which only runc is tested.
"""

EITHER = "1 or 2"
ENGINE: Mapping[str, object] = {**{flag: 1 for flags in FLAGS.values() for flag in flags}, "CgroupVersion": EITHER}
DRIVERS: Mapping[str, pb.Capabilities] = {
    "bubblewrap, control groups": bubblewrap.capabilities(dict.fromkeys(("memory", "cpu", "pids"), "control groups")),
    "bubblewrap without them": bubblewrap.capabilities({}),
    **{name: docker.capabilities(kind, kind.enforceable(ENGINE), Link()) for name, kind in KINDS.items()},
    "docker, agents on networks": docker.capabilities(DOCKER, DOCKER.enforceable(ENGINE), Link("network")),
    "docker, agents at ports": docker.capabilities(DOCKER, DOCKER.enforceable(ENGINE), Link("port")),
}
LIMITS: Mapping[str, str] = {
    "memory": "memory of all processes",
    "cpu": "processor time",
    "pids": "processes and threads",
    "file": "the largest file",
    "disk": "the workspace's size",
}
YES_OR_NO: Mapping[str, str] = {
    "separate_user": "user code under another uid than the agent",
    "pause": "pause and resume",
    "snapshot": "snapshots",
    "workspace_dir": "a directory of the host as the workspace",
    "agent_port": "takes a port of the engine's machine for each sandbox",
    "host_ports": "ports of the node's range",
    "desktop": "a desktop",
}


def page() -> str:
    """Give the whole page."""
    rows = [[what, *cells] for what, cells in _rows(list(DRIVERS.values()))]
    table = [["", *DRIVERS], ["---"] * (len(DRIVERS) + 1), *rows]
    return "\n".join([HEAD, *(f"| {' | '.join(row)} |" for row in table), TAIL])


def _rows(columns: Sequence[pb.Capabilities]) -> Iterator[tuple[str, list[str]]]:
    for name, what in LIMITS.items():
        yield f"limit `{name}`: {what}", [one.limits.get(name, "no") for one in columns]
    for mode in sandbox_pb2.NetworkMode.values()[1:]:
        name = sandbox_pb2.NetworkMode.Name(mode).removeprefix("NETWORK_MODE_").lower()
        holds = [_network(column, name) for column in DRIVERS]
        yield (
            f"network `{name}`",
            [how if mode in one.network_modes else "no" for one, how in zip(columns, holds, strict=True)],
        )
    for field, what in YES_OR_NO.items():
        yield what, ["yes" if getattr(one, field) else "no" for one in columns]
    yield "devices", [", ".join(one.devices) or "no" for one in columns]
    yield "isolation", [one.isolation for one in columns]


def _network(column: str, mode: str) -> str:
    if mode != "none":
        return "the driver's egress proxy"
    if column.endswith("on networks"):
        return "an internal network, with no route for user code"
    return "a network namespace of its own"


if __name__ == "__main__":
    print(page(), end="")

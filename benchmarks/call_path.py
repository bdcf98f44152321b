"""The path of one `run_ipython_cell("1+1")`: the functions that client, gateway, agent and kernel enter for it.

`python -m benchmarks.call_path` prints each of them, in the order of their first entry. Only the benchmark's own
launcher has recorders (sys.setprofile) in the mesh and the agent, and only a cell of the benchmark in the kernel: see
`recorded_mesh`. Product code has no hook.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import recorder
from benchmarks.figures import Figure, box_of
from benchmarks.meshes import RunningMesh, processes_below, running_mesh
from benchmarks.recorded_mesh import AGENT_REPORT, MESH_REPORT
from benchmarks.recorder import START, STOP, Recorder
from sandmesh import BaseSandboxAsync

MOST_FUNCTIONS, MOST_FILES = 70, 28
ROUNDS = 3
"""A function counts that was entered in each of them: what the mesh does besides is not part of the path."""
CALLS = 5
"""Of a round, one after another: each start carries the acknowledgement of the call before it."""
WARM_UP = 20

_READ = f"""
import pathlib
print(pathlib.Path({AGENT_REPORT!r}).read_text())
"""
_RECORD_KERNEL = f"""{Path(recorder.__file__).read_text()}
recorder = CellRecorder()
recorder.install()
"""

CallPath = Mapping[str, Sequence[str]]
"""By process, the functions entered as "file:function", in the order of their first entry."""


async def call_path() -> list[Figure]:
    """Return the length of the path."""
    if os.environ.get("SANDMESH_DRIVER", "bubblewrap") != "bubblewrap":
        return [Figure("the path of one call", "needs the bubblewrap driver: agents of images have no recorder")]
    path = await record()
    parts = [Figure(f"  {process}", length({process: entered})) for process, entered in path.items()]
    return [Figure("the path of one call", length(path), f"<= {MOST_FUNCTIONS} in {MOST_FILES}"), *parts]


def length(path: CallPath) -> str:
    """Return how long a path is, as text."""
    return f"{functions(path)} functions in {files(path)} files"


def functions(path: CallPath) -> int:
    """Return how many functions the processes enter together."""
    return sum(map(len, path.values()))


def files(path: CallPath) -> int:
    """Return how many files these functions are in."""
    return len({name.partition(":")[0] for entered in path.values() for name in entered})


async def record() -> CallPath:
    """Record the path on a mesh of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "mesh"
        os.environ[MESH_REPORT] = str(report)
        # The box's agent is then the only one.
        alone = {"SANDMESH_BUBBLEWRAP_SPARES": "0"}
        opened = running_mesh(program="benchmarks.recorded_mesh", environment=alone)
        async with opened as mesh, box_of(mesh) as box:
            for _ in range(WARM_UP):
                await box.run_ipython_cell("1+1")
            rounds = [await _round(mesh, box, report) for _ in range(ROUNDS)]
            kernel = await _kernel(box)
    path = {
        process: [name for name in entered if all(name in each[process] for each in rounds)]
        for process, entered in rounds[0].items()
    }
    return {**path, "kernel": kernel}


async def _round(mesh: RunningMesh, box: BaseSandboxAsync, report: Path) -> dict[str, list[str]]:
    own = Recorder()
    agents = [pid for pid in processes_below(mesh.pid) if _name(pid) == "sandmesh-agent"]
    if len(agents) != 1:
        raise RuntimeError(f"the mesh has {len(agents)} agents and not one")
    for pid in (mesh.pid, agents[0]):
        os.kill(pid, START)
    await box.run_ipython_cell("1+1")
    own.install()
    own.start()
    for _ in range(CALLS):
        await box.run_ipython_cell("1+1")
    own.uninstall()
    for pid in (mesh.pid, agents[0]):
        os.kill(pid, STOP)
    # Both have reported before they take part in another call.
    reported = await box.run_ipython_cell(_READ)
    return {"client": list(own.entered), "gateway": _read(report), "agent": json.loads(reported.text)}


def _read(report: Path) -> list[str]:
    entered: list[str] = json.loads(report.read_text())
    return entered


async def _kernel(box: BaseSandboxAsync) -> list[str]:
    await box.run_ipython_cell(_RECORD_KERNEL)
    await box.run_ipython_cell("1+1")
    reported = await box.run_ipython_cell("import json; print(json.dumps(list(recorder.entered)))")
    entered: list[str] = json.loads(reported.text)
    return entered


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def main() -> None:
    """Print the path."""
    path = asyncio.run(record())
    for process, entered in path.items():
        print(f"{process}: {length({process: entered})}")
        for name in entered:
            print("    {:<52} {}".format(*name.split(":", 1)))
    print(f"together: {length(path)}")


if __name__ == "__main__":
    main()

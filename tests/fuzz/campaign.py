"""A campaign: each target in a process of its own, watched for crashes and hangs; what failed is kept."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.target import Target, stream_of
from tests.fuzz.targets import (
    archives,
    dockerfiles,
    doors,
    heads,
    images,
    jupyter,
    links,
    patches,
    requests,
    results,
    userland,
)
from tests.fuzz.worker import PLACE, Failure, Run

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = ROOT / ".fuzz"
"""Where inputs that failed are kept."""
PARSERS: Final[Mapping[str, Sequence[Target]]] = {
    "links": links.TARGETS,
    "heads": heads.TARGETS,
    "archives": (*archives.TARGETS, *patches.TARGETS),
    "userland": userland.TARGETS,
    "results": results.TARGETS,
    "requests": requests.TARGETS,
    "doors": (*doors.TARGETS, *jupyter.TARGETS),
    "images": (*images.TARGETS, *dockerfiles.TARGETS),
}
"""The parsers of bytes from sandboxes and registries, and the public RPCs of a mesh, by the module that feeds them."""
TARGETS: Final[Mapping[str, Target]] = {target.name: target for targets in PARSERS.values() for target in targets}

_HANG_SECONDS: Final = 30.0
_START_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.5
_LAST_LINES: Final = 4000


@dataclass(frozen=True)
class Plan:
    """What a campaign does with each target: inputs for some seconds, or those from `first` to before `last`."""

    seed: int
    seconds: float
    first: int = 0
    last: int | None = None


async def run_target(target: Target, plan: Plan) -> Run:
    """Run a target in a process of its own; its crash or hang is a failure of the run."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        place = Path(folder, "place")
        place.write_bytes(bytes(PLACE.size))
        command = ["-m", "tests.fuzz.worker", target.name, str(plan.seed), str(plan.seconds), str(plan.first)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, str(plan.last or ""), str(place),
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        watching = asyncio.create_task(_watch(process, place))
        try:
            output, errors = await process.communicate()
        finally:
            watching.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0 and output:
            found = json.loads(output)
            found["failures"] = [Failure(**failure) for failure in found["failures"]]
            return Run(**found)
        return _broken(target, plan, place, errors.decode(errors="replace")[-_LAST_LINES:])


async def _watch(process: asyncio.subprocess.Process, place: Path) -> None:
    """Kill a worker that stays at one input for too long."""
    began = time.monotonic()
    while process.returncode is None:
        await asyncio.sleep(_LOOK_SECONDS)
        _, since = PLACE.unpack(place.read_bytes())
        if time.monotonic() - (since or began) > (_HANG_SECONDS if since else _START_SECONDS):
            process.kill()
            return


def _broken(target: Target, plan: Plan, place: Path, errors: str) -> Run:
    number, since = PLACE.unpack(place.read_bytes())
    data = target.make(stream_of(plan.seed, target.name, number))
    hung = since and time.monotonic() - since > _HANG_SECONDS
    where = "it hung" if hung else "its process died"
    failure = Failure(number, where, errors, base64.b64encode(data).decode())
    return Run(target.name, plan.seed, number + 1 - plan.first, plan.seconds, {where: 1}, [failure])


def keep(run: Run) -> list[Path]:
    """Write the inputs that failed to files, and return these."""
    kept: list[Path] = []
    for failure in run.failures:
        KEPT.mkdir(exist_ok=True)
        path = KEPT / f"{run.target}-{run.seed}-{failure.number}.bin"
        path.write_bytes(base64.b64decode(failure.data))
        kept.append(path)
    return kept


async def run_all(targets: list[Target], plan: Plan, jobs: int, ended: Callable[[Run], None]) -> list[Run]:
    """Run targets, some at once; `ended` is called with what came of each."""
    turn = asyncio.Semaphore(jobs)

    async def one(target: Target) -> Run:
        async with turn:
            run = await run_target(target, plan)
        ended(run)
        return run

    return await asyncio.gather(*map(one, targets))

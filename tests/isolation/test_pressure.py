"""What one sandbox takes of what the kernel counts by uid, while its neighbour makes calls: none of those fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmeshd.drivers.conformance.inside import call, run, run_cell

from .conftest import Neighbours
from .pressures import HOLDING, PIPES, WATCHES, many_calls

ROUNDS = 250
"""Of four calls each."""

HERE = HOLDING | {"memory of pipes": PIPES}

EPOLL_WATCHES = """
import subprocess, sys
held, report = [], "more"
while report == "more":
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    held.append(subprocess.Popen([sys.executable, "taker.py"], text=True, **pipes))
    report = held[-1].stdout.readline().strip()
print(report == "ENOSPC", flush=True)
"""


async def _neighbour_calls(neighbours: Neighbours) -> None:
    await many_calls(neighbours.two, ROUNDS)
    watched = "import ctypes, select; print(select.epoll().fileno() > 0, ctypes.CDLL(None).inotify_init1(0) >= 0)"
    assert (await run_cell(neighbours.two, watched)).stdout == "True True\n"


@pytest.mark.parametrize("what", HERE)
async def test_a_neighbour_that_takes_all_there_is_stops_no_call(neighbours: Neighbours, what: str) -> None:
    held = await run_cell(neighbours.one, HERE[what])
    assert held.stdout == "True\n", held
    await asyncio.wait_for(_neighbour_calls(neighbours), 300)
    assert (await run(neighbours.one, "echo alive")).stdout == "alive\n"
    assert (await run_cell(neighbours.one, "print(6 * 7)")).stdout == "42\n"


async def test_user_code_has_less_of_what_is_counted_by_uid_than_its_agent(neighbours: Neighbours) -> None:
    names = "RLIMIT_NOFILE", "RLIMIT_SIGPENDING"
    asked = f"import resource; print(*(resource.getrlimit(getattr(resource, n))[1] for n in {names}))"
    descriptors, signals = map(int, (await run_cell(neighbours.one, asked)).stdout.split())
    assert (await run(neighbours.one, "ulimit -Hn; ulimit -Hi")).stdout.split() == [str(descriptors), str(signals)]
    agent = neighbours.folder(neighbours.one).status_value("child-pid")
    assert agent is not None
    assert descriptors <= _soft_limit(agent, "Max open files") // 2
    assert signals <= _soft_limit(agent, "Max pending signals") // 2


def _soft_limit(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(int(line.removeprefix(name).split()[0]) for line in lines if line.startswith(name))


async def test_user_code_gets_a_part_of_the_inotify_instances_of_its_uid(neighbours: Neighbours) -> None:
    listed = "cat /proc/sys/user/max_inotify_instances /proc/sys/user/max_inotify_watches"
    assert (await run(neighbours.one, listed)).stdout.split() == ["32", "32768"]


@pytest.mark.needs("uids for sandboxes")
async def test_a_neighbour_that_takes_all_epoll_watches_stops_no_call(neighbours: Neighbours) -> None:
    assert not (await call(neighbours.one, "write_file", {"path": "taker.py", "content": WATCHES})).message
    held = await run_cell(neighbours.one, EPOLL_WATCHES)
    assert held.stdout == "True\n", held
    await asyncio.wait_for(_neighbour_calls(neighbours), 300)
    # The kernel takes its time for millions of them, more than a sandbox has for its end.
    for _ in range(20):
        ended = "if held: taker = held.pop(); taker.stdin.close(); taker.wait()\nprint(len(held))"
        if (await run_cell(neighbours.one, ended)).stdout == "0\n":
            return
    pytest.fail("too many programs were needed")

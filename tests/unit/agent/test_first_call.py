"""An idle agent warms up by a first cell, which leaves no trace."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from ast import literal_eval
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import CallNotFound
from sandmesh.tools import RunIpythonCell
from sandmeshd.agent.calls.call import Outcome, RunningCall, Timeouts
from sandmeshd.agent.calls.dispatcher import AgentIdentity, Dispatcher
from sandmeshd.agent.calls.event_log import LogPosition
from sandmeshd.agent.calls.toolbox import Toolbox
from sandmeshd.agent.link.link import serve_links
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.processes.namespaces import control_sockets
from sandmeshd.agent.processes.spawner import ProcessLimits, ProcessSpawner
from sandmeshd.agent.python.cells import Cells, Code, MakeKernel
from sandmeshd.agent.python.kernels import open_kernel
from sandmeshd.agent.startup.first_call import FirstCall
from sandmeshd.agent.startup.first_tools import CellParams

from .client import SANDBOX, TOKEN, Client, connect
from .sandbox import Ground, children

pytestmark = pytest.mark.needs("user namespaces")

TOKEN_IN_FORCE = 7
SEEN = """
import random, sys
shell = get_ipython()
history = shell.history_manager
[sorted(name for name in globals() if name not in ('random', 'sys', 'shell', 'history')), len(In), Out,
 shell.execution_count, (_i, _ii, _iii), [*history.input_hist_raw[:-1]], shell.last_execution_result,
 [name for name in dir(sys) if name.startswith('last_')], sys.argv]
"""
FRESH: list[Any] = [
    [
        *("In", "Out", "__builtin__", "__builtins__", "__name__", "__spec__", "_dh", "_i", "_i1", "_ih", "_ii", "_iii"),
        *("_oh", "exit", "get_ipython", "open", "quit"),
    ],
    # IPython counts a cell before it runs it.
    *(2, {}, 2, ("", "", ""), [""], None, [], [""]),
]


@dataclass
class Agent:
    """The part of an agent that runs cells, in the process of the test, and what its gateway is."""

    dispatcher: Dispatcher
    cells: WatchedCells
    client: Client
    zygote: int

    async def run_warm_up(self, code: str, timeout: float | None = None) -> tuple[Outcome, bytes]:
        """Run a warm-up cell and return its outcome and its events."""
        call = RunningCall(pb.CallStart(call_id="warm-up"), Timeouts(interrupt=0.2))
        outcome = await self.cells.run_warm_up(CellParams(code, timeout), call)
        return outcome, b"".join(self.events(call))

    def events(self, call: RunningCall) -> list[bytes]:
        """Return the content of a call that nobody follows."""
        pieces, _ = call.log.after(LogPosition(0), 1 << 20)
        events = pb.CallEventBatch.FromString(b"".join(pieces)).events
        return [event.content.json for event in events if event.HasField("content")]

    async def run(self, code: str) -> str:
        """Run a cell as a caller does, and give the text of all that came."""
        arguments = json.dumps({"code": code}).encode()
        channel = self.client.start("run_ipython_cell", arguments, fencing_token=TOKEN_IN_FORCE)
        return "".join(json.loads(block)["text"] for block in (await channel.end()).blocks)


class WatchedCells(Cells):
    """Cells that keep how warm-ups ended."""

    def __init__(self, processes: ProcessSpawner, make: MakeKernel) -> None:
        super().__init__(processes, make, Memory(-1, 0))
        self.warm_ups: asyncio.Queue[Outcome] = asyncio.Queue()

    async def run_warm_up(self, cell: Code, call: RunningCall) -> Outcome:
        outcome = await super().run_warm_up(cell, call)
        self.warm_ups.put_nowait(outcome)
        return outcome


@pytest.fixture
def zygote(ground: Ground, tmp_path: Path) -> Generator[tuple[int, socket.socket]]:
    """Return a zygote's pid, and the agent's end of its control socket."""
    ours, theirs = control_sockets()
    program = ground.agent / "sandmeshd" / "agent" / "userland" / "__main__.py"
    python = [str(ground.environment / "bin" / "python"), "-I", str(program), "zygote", str(theirs.fileno())]
    process = subprocess.Popen(python, pass_fds=[theirs.fileno()], env={"HOME": str(tmp_path)}, cwd=tmp_path)
    theirs.close()
    yield process.pid, ours
    ours.close()
    process.wait(timeout=60)


@pytest.fixture
async def agent(zygote: tuple[int, socket.socket], tmp_path: Path) -> AsyncGenerator[Agent]:
    """Yield an agent whose kernel has run nothing."""
    pid, control = zygote
    processes = ProcessSpawner(control, ProcessLimits(0))
    cells = WatchedCells(processes, partial(open_kernel, processes, str(tmp_path)))
    try:
        async with asyncio.timeout(60):
            await cells.renew()
            async with _linked(cells, str(tmp_path / "socket"), pid) as linked:
                yield linked
    finally:
        await cells.close()
        processes.close()


@asynccontextmanager
async def _linked(cells: WatchedCells, path: str, zygote: int) -> AsyncGenerator[Agent]:
    toolbox = Toolbox({RunIpythonCell: cells.run}, ["generic"])
    dispatcher = Dispatcher(AgentIdentity(SANDBOX, TOKEN, "test"), TOKEN_IN_FORCE, lambda: toolbox)
    server = await asyncio.get_running_loop().create_unix_server(serve_links(dispatcher), path)
    async with server, connect(path) as client:
        yield Agent(dispatcher, cells, client, zygote)
    await dispatcher.close()


async def test_the_first_cell_after_a_warm_up_finds_nothing_of_it(agent: Agent) -> None:
    await FirstCall(agent.dispatcher, agent.cells).run()
    assert literal_eval(await agent.run(SEEN)) == FRESH
    assert await agent.run(f"len(In), _i1.strip() == {SEEN.strip()!r}") == "(3, True)"


async def test_a_warm_up_takes_no_call_id_and_no_token_of_the_sandbox(agent: Agent) -> None:
    await FirstCall(agent.dispatcher, agent.cells).run()
    assert agent.dispatcher.calls.untouched
    agent.dispatcher.check_token(TOKEN_IN_FORCE)
    with pytest.raises(CallNotFound):
        agent.dispatcher.calls.get("warm-up")


async def test_a_warm_up_comes_by_itself_and_passes_a_cell_through_the_kernel(agent: Agent) -> None:
    first_call = FirstCall(agent.dispatcher, agent.cells)
    first_call.schedule()
    outcome = await agent.cells.warm_ups.get()
    assert (outcome.is_error, outcome.reason) == (False, pb.END_REASON_EXITED)
    await first_call.close()


async def test_a_warm_up_that_is_left_leaves_the_kernel_to_others(agent: Agent) -> None:
    first_call = FirstCall(agent.dispatcher, agent.cells)
    first_call.schedule()
    await first_call.close()
    assert literal_eval(await agent.run(SEEN)) == FRESH
    assert agent.cells.warm_ups.empty()


async def test_what_a_warm_up_runs_is_run_and_forgotten(agent: Agent) -> None:
    outcome, events = await agent.run_warm_up("x = 41\nimport random as r\n1/0 if x < 41 else x + 1")
    assert (outcome.is_error, b'"42"' in events) == (False, True)
    assert literal_eval(await agent.run(SEEN)) == FRESH


async def test_what_a_warm_up_raises_is_forgotten(agent: Agent) -> None:
    outcome, events = await agent.run_warm_up("1/0")
    assert (outcome.is_error, b"ZeroDivisionError" in events) == (True, True)
    assert literal_eval(await agent.run(SEEN)) == FRESH


async def test_nothing_is_warmed_up_in_a_kernel_that_has_run_a_cell(agent: Agent) -> None:
    await agent.run("x = 1")
    outcome, events = await agent.run_warm_up("x = 2")
    assert (outcome.is_error, events) == (True, b"")
    await FirstCall(agent.dispatcher, agent.cells).run()
    assert await agent.run("x, len(In)") == "(1, 3)"


async def test_a_cell_that_comes_during_a_warm_up_is_answered_after_it(agent: Agent) -> None:
    warm_up = asyncio.create_task(agent.run_warm_up("import time; time.sleep(0.5); print('warmed up'); 1"))
    await asyncio.sleep(0)
    assert agent.cells.busy is False
    assert literal_eval(await agent.run(SEEN)) == FRESH
    outcome, _ = await warm_up
    assert outcome.is_error is False


@pytest.mark.parametrize("code", ["import os; os.kill(os.getpid(), 9)", "import os; os._exit(3)", "exit()"])
async def test_a_kernel_that_dies_in_a_warm_up_is_replaced_without_a_word(agent: Agent, code: str) -> None:
    await agent.run_warm_up(code)
    assert literal_eval(await agent.run(SEEN)) == FRESH


@pytest.mark.parametrize(
    "code", ["while True: pass", "while True:\n try:\n  while True: pass\n except BaseException: 1"]
)
async def test_a_warm_up_that_does_not_end_is_ended(agent: Agent, code: str) -> None:
    outcome, _ = await agent.run_warm_up(code, 0.2)
    assert outcome.reason == pb.END_REASON_TIMED_OUT
    assert literal_eval(await agent.run(SEEN)) == FRESH
    assert agent.cells.busy is False


async def test_a_kernel_that_is_restarted_in_a_warm_up_is_replaced_once(agent: Agent) -> None:
    warm_up = asyncio.create_task(agent.run_warm_up("while True: pass"))
    await asyncio.sleep(0)
    await agent.cells.restart()
    await warm_up
    assert literal_eval(await agent.run(SEEN)) == FRESH
    assert len(children(agent.zygote)) == 1

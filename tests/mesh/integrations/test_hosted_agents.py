"""Sessions of hosted agents in sandboxes, by the vendor's own client against a local server with its API."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.mesh.commands import Commands, running_mesh
from tests.mesh.integrations.managed_agents import ENVIRONMENT, KEY, AgentSession, ManagedAgents
from tests.mesh.integrations.model_apis import ModelApis, model_apis
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

TOKEN = "sk-ant-session-real-91ab"  # noqa: S105 - of this test's server
LOOK = "echo $((6 * 7)); env; hostname; curl -sS -m 20 https://example.org; ls; echo kept > kept.txt"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def queue() -> ManagedAgents:
    """Give the vendor's queue."""
    return ManagedAgents()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def apis(queue: ManagedAgents, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelApis]:
    """Serve its API in the place of the vendor's host."""
    async with model_apis("", tmp_path_factory.mktemp("apis"), queue.routes()) as serving:
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def commands(apis: ModelApis) -> AsyncGenerator[Commands]:
    """Run a mesh that reaches it, and have commands that do."""
    reached = {"HTTPS_PROXY": apis.settings["SANDMESH_EGRESS_PROXY"], "NO_PROXY": "127.0.0.1,localhost"}
    reached |= {"SSL_CERT_FILE": apis.settings["SANDMESH_EGRESS_CA_FILE"], "ANTHROPIC_ENVIRONMENT_KEY": KEY}
    mesh = running_mesh(**apis.settings)
    up = await asyncio.to_thread(mesh.__enter__)
    try:
        yield Commands(up.settings, {**up.environment, **reached, "ANTHROPIC_API_KEY": "sk-ant-of-another-use"})
    finally:
        await asyncio.to_thread(mesh.__exit__, None, None, None)


@asynccontextmanager
async def worker(commands: Commands, *arguments: str) -> AsyncGenerator[subprocess.Popen[bytes]]:
    """Run a worker until the block ends; it ends by Ctrl-C without an error."""
    running = commands.start("worker", "claude", "--environment", ENVIRONMENT, *arguments)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGINT)
        _, said = await asyncio.to_thread(running.communicate, timeout=60)
    assert running.returncode == 130
    assert b"Traceback" not in said


async def test_each_session_has_a_sandbox_and_no_credential_enters_it(commands: Commands, queue: ManagedAgents) -> None:
    first, second = AgentSession("sesn_one", LOOK, TOKEN), AgentSession("sesn_two", LOOK)
    queue.queue += [first, second]
    async with asyncio.timeout(240), worker(commands):
        await asyncio.gather(first.stopped.wait(), second.stopped.wait())
        again = AgentSession("sesn_one", "cat kept.txt", f"{TOKEN}-new")
        queue.queue.append(again)
        await again.stopped.wait()
    assert queue.polls == {KEY}
    assert (first.seen, second.seen, again.seen) == ({TOKEN}, {KEY}, {f"{TOKEN}-new"})
    for session in (first, second):
        assert '"text": "42\\n' in session.result
        assert TOKEN not in session.result
        assert KEY not in session.result
        assert "403" in session.result  # of example.org
        assert "kept.txt" not in session.result
    assert "kept" in again.result
    listed = (await asyncio.to_thread(commands.run, "ls", "-o", "json")).json
    assert len(listed) == 2, listed


async def test_a_worker_that_ends_gives_back_what_it_was_serving(commands: Commands, queue: ManagedAgents) -> None:
    session = AgentSession("sesn_long", "echo started > started; sleep 100", TOKEN)
    queue.queue.append(session)
    async with asyncio.timeout(100), worker(commands):
        await until(lambda: TOKEN in session.seen, 60)
    assert session.stopped.is_set()
    assert not session.answered.is_set()


async def test_a_session_goes_on_when_its_worker_is_killed(commands: Commands, queue: ManagedAgents) -> None:
    session = AgentSession("sesn_left", "sleep 3; echo finished", TOKEN)
    queue.queue.append(session)
    async with asyncio.timeout(100):
        running = commands.start("worker", "claude", "--environment", ENVIRONMENT)
        await until(lambda: TOKEN in session.seen, 60)
        await asyncio.sleep(1)  # it has been asked for the command
        running.kill()
        await asyncio.to_thread(running.communicate)
        await session.stopped.wait()
    assert "finished" in session.result


async def test_a_wrong_key_is_said_and_a_missing_one(commands: Commands) -> None:
    def run(key: str) -> str:
        done = commands.run("worker", "claude", "--environment", ENVIRONMENT, ok=False, ANTHROPIC_ENVIRONMENT_KEY=key)
        assert done.code != 0
        return done.err

    assert "the API refuses the worker: " in await asyncio.to_thread(run, "sk-ant-wrong")
    assert "set ANTHROPIC_ENVIRONMENT_KEY to the environment's key" in await asyncio.to_thread(run, "")

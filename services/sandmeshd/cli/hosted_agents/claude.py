"""A worker of Claude Managed Agents' self-hosted environments: the tools of each session run in a sandbox.

The API keeps a queue for an environment. The worker claims work by the vendor's client, and starts the vendor's runner
(`claude_session.py`) in the session's sandbox, which keeps the claim by heartbeats, carries out the session's tools and
ends the work. https://platform.claude.com/docs/en/managed-agents/self-hosted-sandboxes describes the protocol.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import typer
from anthropic import APIError, AsyncAnthropic, Omit

from sandmesh import Output
from sandmesh.errors import CallFinished, MeshUnavailable, SandmeshError
from sandmesh.inputs import Options, Secret
from sandmeshd.cli.coding_agents.agents import ANTHROPIC
from sandmeshd.cli.hosted_agents import TEMPLATE
from sandmeshd.cli.run.call_output import exit_code_of
from sandmeshd.cli.terminal.connection import ConnectionOptions, own_user
from sandmeshd.cli.terminal.output import escape_controls

if TYPE_CHECKING:
    from anthropic.types.beta.environments import BetaSelfHostedWork

    from sandmesh import ProcessAsync, SandboxAsync
    from sandmesh.mesh import MeshAsync

TOKEN: Final = "SANDMESH_WORK_TOKEN"  # noqa: S105 - the name of a variable
PROGRAM: Final = Path(__file__).with_name("claude_session.py")
CREATE_SECONDS: Final = 600.0
"""The first create may build the template."""
END_SECONDS: Final = 15.0
"""How long a session's runner may take to give its work back when the worker ends."""
RENEW_SECONDS: Final = 300.0
LONGEST_LINE: Final = 2000
LARGEST_SECRET: Final = 1 << 16


@dataclass(frozen=True)
class WorkerStart:
    """Which queue a worker serves, and what its sandboxes are like."""

    environment_id: str
    key: str
    variables: Mapping[str, str]
    """This process's, which may name another address of the API."""
    sandbox_type: str
    most: int
    """Of the sessions that are served side by side."""
    keep_seconds: float
    """How long a session's sandbox is kept after its last work."""
    network: tuple[str, ...]
    env: Mapping[str, str]
    limits: dict[str, object] | None

    def options(self, token: str) -> Options:
        """Return the options of a session's sandbox, in which `token` is a placeholder.

        Raises:
            InvalidArgument: The API's address is not https.
        """
        host = ANTHROPIC.host(self.variables)
        return Options(
            env=dict(self.env),
            limits=self.limits,
            network=[host, *self.network],
            secrets={TOKEN: Secret(hosts=[host], value=token)},
            ttl=self.keep_seconds,
        )


class ClaudeWorker:
    """Claims sessions of an environment, at most so many side by side, and serves each in its sandbox."""

    def __init__(self, connection: ConnectionOptions, start: WorkerStart) -> None:
        self._connection = connection
        self._start = start
        self._places = asyncio.Semaphore(start.most)
        self._user = None if connection.token else own_user()

    async def run(self) -> None:
        """Serve the queue until it is cancelled.

        Raises:
            APIError: The API refuses the key or the environment.
            SandmeshError: The mesh cannot make such sandboxes.
        """
        address = ANTHROPIC.endpoint(self._start.variables)
        # Another key of this process's environment is not for this.
        headers = {"X-Api-Key": Omit()}
        opened = AsyncAnthropic(auth_token=self._start.key, base_url=address, default_headers=cast("Any", headers))
        async with opened as client, self._connection.mesh(CREATE_SECONDS) as mesh:
            await self._try_sandbox()
            typer.echo(f"waiting for sessions of {self._start.environment_id}, {self._start.most} at most", err=True)
            async with asyncio.TaskGroup() as sessions:
                await self._places.acquire()
                async for work in client.beta.environments.work.poller(
                    environment_id=self._start.environment_id, environment_key=self._start.key, auto_stop=False
                ):
                    sessions.create_task(self._serve(client, mesh, work))
                    # Work that there is no place for stays in the queue, for other workers.
                    await self._places.acquire()

    async def _try_sandbox(self) -> None:
        """Open a sandbox, which builds the template: what is wrong is said before any work is claimed."""
        from sandmesh import SandboxAsync  # noqa: PLC0415 - help needs none of it

        options = self._start.options(self._start.key)
        address, token = self._connection.require_address(), self._connection.token
        box = SandboxAsync(None, CREATE_SECONDS, address, token, sandbox_type=self._start.sandbox_type, **options)
        async with box, await box.processes.start(["python3", "-c", "import anthropic"]) as process:
            done = await process.wait()
        if done.exit_code != 0:
            fix = f"use a template whose Python has the package anthropic, as {TEMPLATE} does"
            raise SandmeshError(f"sandboxes of type {self._start.sandbox_type} cannot run sessions: {fix}")

    async def _serve(self, client: AsyncAnthropic, mesh: MeshAsync, work: BetaSelfHostedWork) -> None:
        """Serve one work item; whatever happens to it, the worker goes on."""
        try:
            # The queue has items for checks of health, too, which the client's types do not name.
            kind: str = work.data.type
            if kind == "session":
                await self._run_session(mesh, work)
            else:
                await self._stop(client, work)
        except (SandmeshError, OSError) as error:
            _say(work, f"failed: {error}")
            await self._stop(client, work)
        finally:
            self._places.release()

    async def _run_session(self, mesh: MeshAsync, work: BetaSelfHostedWork) -> None:
        token = sessions_token(work.secret)
        options = self._start.options(token or self._start.key)
        name, kind = f"claude-{work.data.id}", self._start.sandbox_type
        session = await mesh.sessions.connect(name, self._user, kind, **options)
        async with self._connection.sandbox(session.sandboxes[kind]) as box:
            _say(work, f"in {box.sandbox_id}")
            # A session that goes on has its sandbox, and each work item a token.
            await box.secrets.set(TOKEN, token or self._start.key)
            env = {
                "ANTHROPIC_BASE_URL": ANTHROPIC.endpoint(self._start.variables),
                "ANTHROPIC_ENVIRONMENT_ID": work.environment_id,
                "ANTHROPIC_SESSION_ID": work.data.id,
                "ANTHROPIC_WORK_ID": work.id,
                "SANDMESH_WORK_TOKEN_OF": "session" if token else "environment",
            }
            keeping = asyncio.create_task(self._keep(box))
            try:
                code = await _run(box, env, work)
            finally:
                keeping.cancel()
            await box.renew(self._start.keep_seconds)
        if code != 0:
            raise SandmeshError(f"its runner ended with {code}")
        _say(work, "ended")

    async def _keep(self, box: SandboxAsync) -> None:
        """Renew the lease of a session's sandbox while it works: an attached box does not."""
        while True:
            await asyncio.sleep(min(self._start.keep_seconds / 4, RENEW_SECONDS))
            with suppress(MeshUnavailable):
                await box.renew(self._start.keep_seconds)

    async def _stop(self, client: AsyncAnthropic, work: BetaSelfHostedWork) -> None:
        """Return work that was not served, as its runner would; what has ended already is fine."""
        with suppress(APIError):
            await client.beta.environments.work.stop(work.id, environment_id=work.environment_id, force=True)


def sessions_token(secret: object) -> str | None:
    """Return the token in the secret of a work item, which is JSON in base64; None where there is none."""
    if not isinstance(secret, str) or not secret or len(secret) > LARGEST_SECRET:
        return None
    try:
        found: object = json.loads(base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4)))
    except (ValueError, RecursionError):
        return None
    token = cast("dict[str, object]", found).get("sessions_token") if isinstance(found, dict) else None
    return token if isinstance(token, str) and token else None


async def _run(box: SandboxAsync, env: Mapping[str, str], work: BetaSelfHostedWork) -> int:
    """Run the vendor's runner for a work item, and return its exit code."""
    program = await asyncio.to_thread(PROGRAM.read_text)
    async with await box.processes.start(["python3", "-c", program], env=env) as process:
        await process.close_stdin()
        try:
            await _follow(process, work)
        except asyncio.CancelledError:
            await asyncio.shield(_end(process))
            raise
        return exit_code_of(await process.wait())


async def _follow(process: ProcessAsync, work: BetaSelfHostedWork) -> None:
    """Print what a session's runner writes, line by line."""
    rest = b""
    async for event in process:
        if not isinstance(event, Output):
            continue
        *lines, rest = (rest + event.data).split(b"\n")
        for line in lines:
            _say(work, line.decode("utf-8", "replace"))
        rest = rest[-LONGEST_LINE:]
    if rest:
        _say(work, rest.decode("utf-8", "replace"))


async def _end(process: ProcessAsync) -> None:
    """Interrupt a session's runner, so that it gives its work back; kill it where it does not end."""
    with suppress(CallFinished, TimeoutError):
        await process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), END_SECONDS)
    await process.kill()


def _say(work: BetaSelfHostedWork, text: str) -> None:
    typer.echo(f"{escape_controls(work.data.id)}: {escape_controls(text[:LONGEST_LINE])}", err=True)

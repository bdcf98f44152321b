"""Runs commands inside a sandbox, as its user's code does."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.drivers.agent_link import open_link

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Finished:
    """A command that ended."""

    exit_code: int
    stdout: str
    stderr: str


async def run(sandbox: pb.RuntimeSandbox, command: str, fencing_token: int = 0) -> Finished:
    """Run a shell command in a sandbox and give what it wrote.

    Raises:
        SandboxLost: The agent does not answer.
        LeaseLost: A higher fencing token is in force.
    """
    call_id = secrets.token_hex(8)
    start = call_pb2.CallStart(
        sandbox_id=sandbox.sandbox_id,
        call_id=call_id,
        tool="run_shell_command",
        arguments=json.dumps({"command": command}).encode(),
        fencing_token=fencing_token,
    )
    frame = call_pb2.CallFrame(call_id=call_id, start=start)
    events: list[call_pb2.CallEvent] = []
    async with open_link(sandbox, PATIENCE_SECONDS) as link:
        async for answer in link.answers(agent_pb2.ToAgent(channel=1, call=agent_pb2.Fenced(frame=frame))):
            events += call_pb2.CallEventBatch.FromString(answer.batch).events
    return _finished(events)


def _finished(events: list[call_pb2.CallEvent]) -> Finished:
    written = {call_pb2.STREAM_STDOUT: b"", call_pb2.STREAM_STDERR: b""}
    for event in events:
        if event.HasField("output"):
            written[event.output.stream] += event.output.data
    out, err = (written[stream].decode("utf-8", "replace") for stream in (1, 2))
    return Finished(events[-1].result.exit_code, out, err)


async def evaluate(sandbox: pb.RuntimeSandbox, program: str) -> Any:
    """Run a Python program that prints one JSON value, and give the value."""
    quoted = program.replace("'", "'\\''")
    done = await run(sandbox, f"python3 -c '{quoted}'")
    if done.exit_code != 0:
        raise AssertionError(f"the probe failed with {done.exit_code}: {done.stderr}")
    return json.loads(done.stdout)

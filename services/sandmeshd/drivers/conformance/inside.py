"""Runs commands inside a sandbox, as its user's code does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Finished:
    """A command that ended; the code is minus the signal where one ended it, and None where it did not run."""

    exit_code: int | None
    stdout: str
    stderr: str
    reason: int = call_pb2.END_REASON_EXITED
    """Why the call ended, of EndReason."""
    message: str = ""
    """What its result says."""
    content: str = ""
    """Its content blocks, each one JSON, a line each."""


async def run(sandbox: pb.RuntimeSandbox, command: str, fencing_token: int = 0) -> Finished:
    """Run a shell command in a sandbox and give what it wrote.

    Raises:
        SandboxLost: The agent does not answer.
        LeaseLost: A higher fencing token is in force.
    """
    return await call(sandbox, "run_shell_command", {"command": command}, fencing_token)


async def run_cell(sandbox: pb.RuntimeSandbox, code: str) -> Finished:
    """Run a Python cell in a sandbox's kernel."""
    return await call(sandbox, "run_ipython_cell", {"code": code})


async def call(
    sandbox: pb.RuntimeSandbox, tool: str, arguments: Mapping[str, object], fencing_token: int = 0
) -> Finished:
    """Call a tool in a sandbox.

    Raises:
        SandboxLost: The agent does not answer.
        LeaseLost: A higher fencing token is in force.
    """
    async with open_link(sandbox, PATIENCE_SECONDS) as link:
        started = AgentCall(link)
        started.start(sandbox.sandbox_id, tool, arguments, fencing_token=fencing_token)
        events = await started.wait()
    return _finished(events)


def _finished(events: list[call_pb2.CallEvent]) -> Finished:
    out, err = (_written(events, stream) for stream in (call_pb2.STREAM_STDOUT, call_pb2.STREAM_STDERR))
    result = events[-1].result
    blocks = [event.content.json.decode() for event in events if event.HasField("content")]
    return Finished(_code(result), out, err or result.message, result.reason, result.message, "\n".join(blocks))


def _code(result: call_pb2.Result) -> int | None:
    if result.HasField("exit_code"):
        return result.exit_code
    return -result.signal if result.HasField("signal") else None


def _written(events: list[call_pb2.CallEvent], stream: int) -> str:
    parts = [event.output.data for event in events if event.HasField("output") and event.output.stream == stream]
    return b"".join(parts).decode("utf-8", "replace")


async def evaluate(sandbox: pb.RuntimeSandbox, program: str) -> Any:
    """Run a Python program that prints one JSON value, and give the value."""
    quoted = program.replace("'", "'\\''")
    done = await run(sandbox, f"python3 -c '{quoted}'")
    if done.exit_code != 0:
        raise AssertionError(f"the probe failed with {done.exit_code}: {done.stderr}")
    return json.loads(done.stdout)

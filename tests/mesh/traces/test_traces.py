"""One trace from a program's call through gateway, broker, allocator and driver to a process, at a real collector."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import grpc

from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from tests.mesh.cli.test_apart import services
from tests.otlp import Collector, ReceivedSpan, open_collector

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "observability.md").read_text()
SHOWN = re.findall(r"```python\n(.*?)```", PAGE.partition("## Traces")[2], re.DOTALL)[0]
PROGRAM = f"""{SHOWN}
with trace.get_tracer("agent").start_as_current_span("another"), BaseSandbox() as box:
    print(box.run_shell_command("echo none$TRACEPARENT").stdout)
provider.shutdown()
"""


async def run_program(text: str, **variables: str) -> str:
    """Run a program as a user would, and return what it prints."""
    command = (sys.executable, "-c", text)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **variables}
    )
    out, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    return out.decode()


def _path(collector: Collector, *names: str) -> list[ReceivedSpan]:
    """Return the spans of a path down the first trace, by `service: name`; each is below the one before."""
    first = [span for span in collector.spans if f"{span.service}: {span.name}" == names[0]]
    found = [min(first, key=lambda one: one.span.start_time_unix_nano)]
    for name in names[1:]:
        below = [span for span in collector.below(found[-1]) if f"{span.service}: {span.name}" == name]
        assert below, f"no {name} below {found[-1].name}: {collector.tree(found[-1])}"
        found.append(below[0])
    return found


def _check_create(collector: Collector) -> str:
    """Check the spans of a create, and return the id of its sandbox."""
    connect, claim = "sandmesh.api.session.v1.SessionService/ConnectSession", "sandmesh.api.sandbox.v1.SandboxService"
    *_, allocator, start, create, driver = _path(
        collector,
        "agent: task",
        f"agent: {connect}",
        f"sandmesh-gateway: {connect}",
        f"sandmesh-broker: {connect}",
        f"sandmesh-allocator: {claim}/ClaimSandbox",
        "sandmesh-allocator: start sandbox",
        "sandmesh-allocator: driver CreateSandbox",
        "sandmesh-driver: sandmesh.api.driver.v1.DriverService/CreateSandbox",
    )
    assert allocator.events == ["cold"]
    assert start.attributes["sandmesh.template"] == "base"
    assert create.attributes["sandmesh.driver"] == "bubblewrap"
    assert driver.attributes["rpc.method"] == "CreateSandbox"
    return str(start.attributes["sandmesh.sandbox_id"])


def _check_call(collector: Collector, sandbox_id: str) -> str:
    """Check the spans of a call, and return the id of the agent's part."""
    tool = "run_shell_command"
    outer, call, agent = _path(
        collector, f"agent: execute_tool {tool}", f"sandmesh-gateway: call {tool}", f"sandmesh-gateway: agent {tool}"
    )
    assert outer.attributes["gen_ai.tool.name"] == tool
    assert outer.attributes["gen_ai.tool.call.id"] == call.attributes["sandmesh.call_id"]
    assert call.attributes["sandmesh.sandbox_id"] == sandbox_id
    took = (agent.span.end_time_unix_nano - agent.span.start_time_unix_nano) / 1e9
    assert 0 < agent.attributes["sandmesh.agent.run_seconds"] < took
    return agent.span_id


async def test_a_cold_create_and_a_call_are_one_trace_of_all_services(tmp_path: Path) -> None:
    async with open_collector() as collector, services(1, tmp_path, **collector.environment) as (gateway,):
        names = {"OTEL_SERVICE_NAME": "agent", "SANDMESH_ADDRESS": f"grpc://{gateway}"}
        shown, hidden = (await run_program(PROGRAM, **collector.environment, **names)).split()
        # What a stranger sends instead of a place in a trace begins one, and is not shown to anybody.
        await _connect(gateway, (("traceparent", f"00-{'g' * 32}-{'1' * 16}-01"), ("tracestate", "x" * 4000)))
        ends = ["sandmesh.api.driver.v1.DriverService/CreateSandbox", "call run_shell_command", "task"]
        await collector.wait_for(lambda spans: all(end in [span.name for span in spans] for end in ends))
        await collector.wait_for(lambda spans: len({span.trace_id for span in spans}) >= 2)
    sandbox_id = _check_create(collector)
    span_id = _check_call(collector, sandbox_id)
    trace_id = next(span.trace_id for span in collector.spans if span.name == "task")
    assert (shown, hidden) == (f"00-{trace_id}-{span_id}-01", "none")
    assert not [span for span in collector.spans if "g" in span.trace_id or "x" * 100 in span.span.trace_state]
    lines = [json.loads(line) for name in ("gateway", "driver") for line in (tmp_path / name).read_text().splitlines()]
    traced = {line["method"] for line in lines if line.get("trace_id") == trace_id and line["event"] == "an RPC ended"}
    assert {one.rpartition("/")[2] for one in traced} >= {"ConnectSession", "CreateSandbox"}


async def _connect(gateway: str, metadata: tuple[tuple[str, str], ...]) -> None:
    request = session_pb2.ConnectSessionRequest(user_id="eve", session_id="s-1")
    async with grpc.aio.insecure_channel(gateway) as channel:
        await session_pb2_grpc.SessionServiceStub(channel).ConnectSession(request, metadata=metadata)

"""The page for Prometheus and the log's lines, during real calls."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sandmesh import SandboxAsync, errors
from sandmesh.api.driver.v1 import driver_pb2, driver_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from tests.mesh.commands import Commands, own_mesh_id, running_mesh
from tests.mesh.conftest import run_mesh


def read(text: str) -> dict[str, float]:
    """Return the values by name and labels, as Prometheus writes them."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


async def scrape(address: str) -> dict[str, float]:
    """Read a page as Prometheus does."""
    return await asyncio.to_thread(fetch, address)


def fetch(address: str) -> dict[str, float]:
    """Read a page in this thread."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:  # noqa: S310 - our own address
        assert answer.headers["Content-Type"].startswith("text/plain")
        return read(answer.read().decode())


async def test_calls_creates_and_pools_are_counted_as_they_happen() -> None:
    async with run_mesh(pools={"base": 1}) as mesh:
        [page] = await mesh.http.open()
        async with asyncio.timeout(60), SandboxAsync(sandbox_type="base", base_url=mesh.addresses[0]) as box:
            await box.call_tool("run_shell_command", {"command": "echo hi"})
            await box.call_tool("run_shell_command", {"command": "exit 3"})
            await box.call_tool("run_shell_command", {"command": "sleep 60", "timeout": 0.2})
            with pytest.raises(errors.ToolNotFound):
                await box.call_tool("no_such_tool")
            await box.call_tool("run_shell_command", {"command": "curl -s -m 5 --noproxy '' http://10.0.0.1/; true"})
            while not (await scrape(page))["sandmesh_egress_refusals_total"]:
                pass
            waiting = asyncio.create_task(box.call_tool("run_shell_command", {"command": "sleep 60"}))
            while (seen := await scrape(page))["sandmesh_calls_started_total{tool=run_shell_command}"] < 5:
                pass
            waiting.cancel()
            await asyncio.wait([waiting])
        shell = "sandmesh_calls_total{reason=EXITED,tool=run_shell_command}"
        assert seen[shell] == 3
        assert seen["sandmesh_calls_total{reason=TIMED_OUT,tool=run_shell_command}"] == 1
        assert seen["sandmesh_call_faults_total{fault=limit}"] == 1
        assert seen["sandmesh_calls_started_total{tool=run_shell_command}"] == 5
        assert seen["sandmesh_call_seconds_count{tool=run_shell_command}"] == 4
        assert seen["sandmesh_call_seconds_sum{tool=run_shell_command}"] >= 0.2
        assert seen["sandmesh_call_output_bytes_total"] > 0
        assert seen["sandmesh_call_input_bytes_total"] > len('{"command": "echo hi"}')
        assert seen["sandmesh_open_calls"] == 1
        assert seen["sandmesh_agent_links"] == 1
        assert seen["sandmesh_open_rpcs{method=sandmesh.api.call.v1.CallService/Multiplex}"] == 1
        assert seen["sandmesh_leases"] == 1
        assert seen["sandmesh_pool_wanted{template=base}"] == 1
        assert seen["sandmesh_sandboxes_limit"] == 100
        created = seen.get("sandmesh_claims_total{source=created}", 0)
        assert created + seen.get("sandmesh_claims_total{source=pooled}", 0) == 1
        assert seen["sandmesh_creates_total{result=ready}"] >= 1
        assert seen["sandmesh_create_seconds_count"] == seen["sandmesh_creates_total{result=ready}"]
        assert seen["sandmesh_rpcs_total{method=sandmesh.api.session.v1.SessionService/ConnectSession,reason=OK}"] == 1
        async with asyncio.timeout(30):
            while (seen := await scrape(page)).get("sandmesh_deletes_total", 0) < 1 or seen["sandmesh_open_calls"]:
                pass
        assert seen["sandmesh_leases"] == 0


async def test_a_tool_that_anybody_makes_up_is_no_label_without_end() -> None:
    async with run_mesh() as mesh:
        [page] = await mesh.http.open()
        async with asyncio.timeout(60), SandboxAsync(sandbox_type="base", base_url=mesh.addresses[0]) as box:
            for number in range(210):
                with pytest.raises(errors.ToolNotFound):
                    await box.call_tool(f"made_up_{number}")
        seen = await scrape(page)
        assert sum(name.startswith("sandmesh_calls_started_total{") for name in seen) <= 201
        assert seen["sandmesh_calls_started_total{tool=other}"] >= 9


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh that logs everything."""
    with running_mesh(SANDMESH_LOG_LEVEL="DEBUG") as commands:
        yield commands


def test_every_line_of_the_log_is_json_and_one_request_has_one_id(sandmesh: Commands) -> None:
    with grpc.insecure_channel(f"unix:{sandmesh.settings.paths.gateway}") as channel:
        stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        with pytest.raises(grpc.RpcError):
            stub.GetSandbox(sandbox_pb2.GetSandboxRequest(sandbox_id="sb_x"), metadata=(("x-request-id", "r-42"),))
        with pytest.raises(grpc.RpcError):
            stub.GetSandbox(sandbox_pb2.GetSandboxRequest(sandbox_id="sb_x"), metadata=(("x-request-id", "a b"),))
    log = Path(sandmesh.settings.paths.state / "mesh.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    ended = [line for line in lines if line["event"] == "an RPC ended" and line["method"].endswith("/GetSandbox")]
    assert {line["reason"] for line in ended} == {"SANDBOX_NOT_FOUND"}
    assert ended[0]["request_id"] == "r-42"
    assert re.fullmatch("[0-9a-f]{16}", ended[1]["request_id"])


def test_a_service_apart_has_a_page_of_its_own(tmp_path: Path) -> None:
    with own_mesh_id() as commands:
        command = ("driver", "bubblewrap", "--listen", f"unix://{tmp_path}/d", "--metrics", "127.0.0.1:0")
        process = subprocess.Popen(
            [sys.executable, "-m", "sandmeshd.cli.service", *command],
            env=commands.variables,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            said = [process.stdout.readline().decode().split()[-1] for _ in range(2)]
            with grpc.insecure_channel(f"unix:{tmp_path}/d") as channel, pytest.raises(grpc.RpcError):
                driver_pb2_grpc.DriverServiceStub(channel).GetInfo(driver_pb2.GetInfoRequest())
            seen = fetch(said[0])
            refused = "sandmesh_rpcs_total{method=sandmesh.api.driver.v1.DriverService/GetInfo,reason=UNAUTHENTICATED}"
            assert seen[refused] == 1
        finally:
            process.terminate()
            process.communicate(timeout=30)
        assert process.returncode == 0

"""Clients of a server-streaming call that die in the middle: what they lacked is replayed to who attaches."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.auth.channels import open_channel
from sandmeshd.mesh import Mesh
from tests.mesh.calls.test_any_language import ROOT, packages
from tests.mesh.calls.test_calls import Box, box, connect, events, output
from tests.mesh.conftest import MeshMaker
from tests.processes import children_of

__all__ = ["box", "packages"]

LINES, LINE = 400, 1000
READER = """
import sys
import time
import grpc
from sandmesh.api.call.v1 import call_pb2 as pb, call_pb2_grpc

request = pb.RunCallRequest.FromString(sys.stdin.buffer.read())
for response in call_pb2_grpc.CallServiceStub(grpc.insecure_channel(sys.argv[1])).RunCall(request):
    for event in response.batch.events:
        if event.HasField("output"):
            print(event.sequence, len(event.output.data), flush=True)
            time.sleep(600)
"""


async def test_what_was_written_to_a_client_that_died_is_replayed_after_the_last_that_it_saw(
    box: Box, mesh: Mesh
) -> None:
    script = f"for i in $(seq {LINES}); do printf '%0{LINE - 1}d\\n' $i; done; echo done > ended"
    request = pb.RunCallRequest(start=box.start(script, "lines"))
    command = (sys.executable, "-c", READER, mesh.addresses[0])
    client = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(request.SerializeToString())
    client.stdin.close()
    last, size = map(int, (await client.stdout.readline()).split())
    assert output(await events(box.run(box.start("until [ -e ended ]; do sleep 0.02; done; cat ended")))) == b"done\n"
    client.kill()
    await client.wait()
    rest = await events(box.attach("lines", last))
    assert [event.sequence for event in rest] == list(range(last + 1, last + 1 + len(rest)))
    assert not any(event.HasField("dropped") for event in rest)
    whole = b"".join(b"%0*d\n" % (LINE - 1, number) for number in range(1, LINES + 1))
    assert output(rest) == whole[size:]
    assert rest[-1].result.exit_code == 0


async def test_who_attaches_before_what_was_acknowledged_is_told_what_is_dropped(box: Box) -> None:
    start = box.start("echo one; sleep 0.2; echo two; read -r line; echo three", "known", takes_input=True)
    stream = box.calls.OpenCall()
    await stream.write(pb.OpenCallRequest(frame=pb.CallFrame(call_id="known", start=start)))
    seen: list[pb.CallEvent] = []
    while output(seen) != b"one\ntwo\n":
        response = await stream.read()
        assert isinstance(response, pb.OpenCallResponse)
        seen += response.batch.events
    acknowledge = pb.Acknowledge(sequence=seen[-1].sequence)
    await stream.write(pb.OpenCallRequest(frame=pb.CallFrame(call_id="known", acknowledge=acknowledge)))
    line = pb.Input(sequence=1, data=b"\n")
    await stream.write(pb.OpenCallRequest(frame=pb.CallFrame(call_id="known", input=line)))
    while not (isinstance(response := await stream.read(), pb.OpenCallResponse) and response.batch.input_ack_sequence):
        pass
    stream.cancel()
    first, *rest = await events(box.attach("known"))
    assert (first.dropped.first_sequence, first.dropped.last_sequence) == (1, seen[-1].sequence)
    assert first.dropped.bytes == len(b"one\ntwo\n")
    assert output(rest) == b"three\n"


GIB, MIB = 1 << 30, 1 << 20
METHOD = "sandmesh.api.call.v1.CallService/RunCall"
NODE = """
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
const [protos, address, sandbox_id, call_id, after_sequence] = process.argv.slice(2);
const options = { includeDirs: [protos], keepCase: true, longs: String, enums: String, arrays: true, oneofs: true };
const { api } = grpc.loadPackageDefinition(loader.loadSync(["sandmesh/api/call/v1/call.proto"], options)).sandmesh;
const calls = new api.call.v1.CallService(address, grpc.credentials.createInsecure());
for await (const { batch } of calls.AttachCall({ attach: { sandbox_id, call_id, after_sequence } })) {
  for (const { sequence, output, dropped } of batch.events) {
    console.log(sequence, dropped ? -1 : output.data.length);
  }
}
"""


@dataclass
class Received:
    """What the clients of a call got of it, one after the other."""

    last: int = 0
    size: int = 0

    def add(self, sequence: int, size: int) -> None:
        """Count an event, which must be the next one and carry output."""
        assert (sequence, size >= 0) == (self.last + 1, True)
        self.last, self.size = sequence, self.size + size


@asynccontextmanager
async def killed(*command: str, folder: Path) -> AsyncGenerator[asyncio.StreamReader]:
    """Run a client, whose lines the block reads until it kills it."""
    pipe, path = asyncio.subprocess.PIPE, f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    client: Process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=pipe, limit=MIB, env={**os.environ, "PATH": path}
    )
    assert client.stdout is not None
    try:
        yield client.stdout
    finally:
        client.kill()
        await client.wait()


async def read_grpcurl(lines: asyncio.StreamReader, received: Received, until: int) -> None:
    """Count the events that grpcurl prints."""
    sequence = 0
    while received.size < until:
        line = await lines.readline()
        if found := re.match(rb' *"sequence": "(\d+)"', line):
            sequence = int(found[1])
        elif b'"started"' in line:
            received.add(sequence, 0)
        elif found := re.match(rb' *"data": "(.*)"', line):
            received.add(sequence, len(base64.b64decode(found[1])))


def peaks() -> tuple[int, int]:
    """Return the most memory that this process ever had, and the most that any agent below it ever had, in bytes."""
    found: list[int] = []
    pids = [os.getpid()]
    for pid in pids:
        pids += children_of(pid)
        with suppress(FileNotFoundError, ProcessLookupError):
            folder = Path(f"/proc/{pid}")
            # Clients that were killed, and what earlier tests left running, are no agents.
            if pid != os.getpid() and b"/opt/sandmesh/site" not in (folder / "cmdline").read_bytes():
                continue
            known = re.search(r"VmHWM:\s+(\d+) kB", (folder / "status").read_text())
            found.append(int(known[1]) << 10 if known else 0)
    return found[0], max(found[1:])


@pytest.mark.needs("node")
@pytest.mark.timeout(900)
async def test_a_gibibyte_arrives_whole_though_grpcurl_and_node_are_killed_in_its_middle(
    make_mesh: MeshMaker, packages: Path
) -> None:
    (packages / "follow.mjs").write_text(NODE)
    async with make_mesh(listen=("127.0.0.1:0",)) as mesh, open_channel(mesh.addresses[1]) as channel:
        box = await connect(channel)
        before, _ = peaks()
        received, sandbox_id, address = Received(), box.sandbox.sandbox_id, mesh.addresses[1]
        text = json.dumps({"command": f"head -c {GIB} /dev/zero"})
        fields = {"sandbox_id": sandbox_id, "call_id": "gib", "tool": "run_shell_command", "arguments_json": text}
        run = ("grpcurl", "-plaintext", "-d", json.dumps({"start": fields}), address, METHOD)
        async with killed(*run, folder=packages) as lines:
            await read_grpcurl(lines, received, 32 * MIB)
        arguments = (str(ROOT / "protos"), address, sandbox_id, "gib", str(received.last))
        async with killed("node", "follow.mjs", *arguments, folder=packages) as lines:
            while received.size < 300 * MIB:
                sequence, size = map(int, (await lines.readline()).split())
                received.add(sequence, size)
        async for answer in box.attach("gib", received.last):
            for event in answer.batch.events:
                assert not event.HasField("dropped")
                received.add(event.sequence, len(event.output.data))
        assert received.size == GIB
        mesh_peak, agent_peak = peaks()
        assert mesh_peak < before + 100 * MIB
        assert agent_peak < 100 * MIB

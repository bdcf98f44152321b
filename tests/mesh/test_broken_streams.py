"""Clients of a server-streaming call that die in the middle: what they lacked is replayed to who attaches."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.mesh import Mesh

from .test_calls import Box, box, events, output

__all__ = ["box"]

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

"""Messages and RPCs of a create, a call and a release: speed is guarded by counts, not by the clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from sandmesh import BaseSandboxAsync
from sandmesh._calls.call import Order
from sandmesh._calls.local_socket import CallSocket, connect
from sandmesh._calls.multiplexer import CallMux
from sandmesh._calls.runner import run_call
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.shared.frames import MAX_SOCKET_MESSAGE, FrameBuffer, pack
from tests.mesh.conftest import run_mesh
from tests.mesh.sandboxes.test_metrics import scrape

OURS = "sandmesh_rpcs_total"


class Gateway:
    """A gateway's call socket that responds to every start with a result and counts messages and frames."""

    def __init__(self) -> None:
        self.messages = 0
        self.joins = False
        """Whether the results of all calls that one message starts are one response."""
        self.frames: Counter[str] = Counter()
        self._has_hello = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = FrameBuffer(MAX_SOCKET_MESSAGE)
        while data := await reader.read(1 << 16):
            for message in buffer.feed(data):
                if self._has_hello:
                    self._handle(pb.MultiplexRequest.FromString(message), writer)
                self._has_hello = True
        writer.close()

    def _handle(self, request: pb.MultiplexRequest, writer: asyncio.StreamWriter) -> None:
        self.messages += 1
        batches: list[pb.CallEventBatch] = []
        for each in request.frames:
            kind = str(each.WhichOneof("frame"))
            self.frames[kind] += 1
            if kind == "start":
                result = pb.CallEvent(sequence=1, result=pb.Result(reason=pb.END_REASON_EXITED))
                batches.append(pb.CallEventBatch(call_id=each.call_id, events=[result]))
        if batches and self.joins and request.takes_more:
            writer.write(pack(pb.MultiplexResponse(batch=batches[0], more=batches[1:]).SerializeToString()))
            return
        for batch in batches:
            writer.write(pack(pb.MultiplexResponse(batch=batch).SerializeToString()))


@asynccontextmanager
async def calling(folder: Path) -> AsyncGenerator[tuple[CallMux, Gateway]]:
    """Yield a multiplexer that is connected to such a gateway."""
    gateway = Gateway()

    async def opened() -> CallSocket:
        found = await connect(CallSocket, f"{folder}/g", ())
        assert found is not None
        return found

    async with asyncio.timeout(30), await asyncio.start_unix_server(gateway.serve, f"{folder}/g.calls"):
        mux = CallMux("unix:g")
        mux.resume(opened)
        yield mux, gateway
        await mux.suspend()


async def call(mux: CallMux, count: int) -> None:
    """Make calls one after another."""
    for _ in range(count):
        await run_call(mux, Order("sb_1", 1, "any", b"{}", 0))


# An acknowledgement that no start carries is sent by itself after a while, so a machine that is busy for so long sends
# more messages: the best of the rounds must reach the figure, and the others stay near it.
ROUNDS = 5
CALLS = 20
MOST_MESSAGES = 30
MOST_SHARED_MESSAGES = 4


async def test_calls_one_after_another_are_a_message_each_that_acknowledges_the_last(tmp_path: Path) -> None:
    messages: list[int] = []
    for number in range(ROUNDS):
        (tmp_path / str(number)).mkdir()
        async with calling(tmp_path / str(number)) as (mux, gateway):
            await call(mux, CALLS)
            messages.append(gateway.messages)
            assert gateway.frames["start"] == CALLS
            assert CALLS - 1 <= gateway.frames["acknowledge"] <= CALLS
            assert set(gateway.frames) == {"start", "acknowledge"}
    assert min(messages) == CALLS
    assert max(messages) <= MOST_MESSAGES


async def test_calls_at_one_moment_share_their_messages(tmp_path: Path) -> None:
    messages: list[int] = []
    async with calling(tmp_path) as (mux, gateway):
        await call(mux, 1)
        for _ in range(ROUNDS):
            before = gateway.messages
            await asyncio.gather(*(call(mux, 1) for _ in range(16)))
            messages.append(gateway.messages - before)
    # The first leaves at once, the others together behind it.
    assert min(messages) == 2
    assert max(messages) <= MOST_SHARED_MESSAGES


async def test_what_follows_responses_that_came_together_leaves_together(tmp_path: Path) -> None:
    messages: list[int] = []
    async with calling(tmp_path) as (mux, gateway):
        await call(mux, 1)
        gateway.joins = True
        for _ in range(ROUNDS):
            before = gateway.messages
            await asyncio.gather(*(call(mux, CALLS) for _ in range(16)))
            messages.append(gateway.messages - before)
    # Two for the first calls, as above; then the fifteen that were answered together go on together, beside the first.
    assert min(messages) <= 2 * CALLS
    assert max(messages) <= MOST_SHARED_MESSAGES * CALLS


async def test_a_create_and_a_release_are_one_rpc_each_and_calls_none() -> None:
    async with asyncio.timeout(120), run_mesh() as mesh:
        [page] = await mesh.http.open()
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            await box.run_ipython_cell("1+1")
            before = rpcs(await scrape(page))
            async with BaseSandboxAsync(base_url=mesh.addresses[0]) as other:
                for _ in range(5):
                    await other.run_ipython_cell("1+1")
            assert rpcs(await scrape(page)) - before == {"ConnectSession": 1, "ReleaseSession": 1}


def rpcs(page: dict[str, float]) -> Counter[str]:
    """Return how many RPCs of each method have ended."""
    found: Counter[str] = Counter()
    for name, value in page.items():
        if name.startswith(OURS):
            found[name.partition("method=")[2].partition(",")[0].rpartition("/")[2]] += int(value)
    return found


async def test_a_cell_forks_nothing_and_a_command_one_process() -> None:
    async with asyncio.timeout(120), run_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        pids = [int((await box.run_shell_command("echo $$")).text) for _ in range(3)]
        assert [pids[1] - pids[0], pids[2] - pids[1]] == [1, 1]
        for _ in range(5):
            await box.run_ipython_cell("1+1")
        assert int((await box.run_shell_command("echo $$")).text) == pids[2] + 1


async def test_a_sandbox_is_three_processes() -> None:
    async with asyncio.timeout(120), run_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_ipython_cell("1+1")
        # Of its own processes user code sees the kernel and its PID 1; the agent is above them.
        listed = await box.run_ipython_cell(
            "import os; sorted(int(name) for name in os.listdir('/proc') if name.isdigit())"
        )
        assert listed.text == "[1, 2]"

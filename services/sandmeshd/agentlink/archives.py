"""What a sandbox holds, out of it or into one, as a tar stream over its agent's link, little of it in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.errors import SandboxLost, SandboxStartFailed, WrongState
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link

_WINDOW = 4 << 20
_CHUNK = 256 << 10


@asynccontextmanager
async def _started(
    sandbox: driver_pb2.RuntimeSandbox, token: int, tool: str, *, takes_input: bool = False, **arguments: object
) -> AsyncGenerator[AgentCall]:
    async with open_link(sandbox, None) as link:
        call = AgentCall(link)
        call.start(
            sandbox.sandbox_id,
            tool,
            arguments,
            fencing_token=token,
            window_bytes=_WINDOW,
            takes_input=takes_input,
        )
        yield call


async def packed(sandbox: driver_pb2.RuntimeSandbox, token: int) -> AsyncGenerator[bytes]:
    """Yield the workspace as a tar stream.

    Raises:
        SandboxLost: Its agent does not answer, or what it holds cannot be read; the message says what.
        LeaseLost: The token is not the one in force.
    """
    async with _started(sandbox, token, "fs.pack", any_modes=True) as call:
        async for data in _drained(call, f"the workspace of {sandbox.sandbox_id}"):
            yield data


async def profile_packed(sandbox: driver_pb2.RuntimeSandbox, token: int) -> AsyncGenerator[bytes]:
    """Yield the profile of the browser as a tar stream; the browser is closed first.

    Raises:
        SandboxLost, LeaseLost: As `packed`.
    """
    async with _started(sandbox, token, "browser.profile.pack") as call:
        async for data in _drained(call, f"the browser's profile of {sandbox.sandbox_id}"):
            yield data


async def saved(sandbox: driver_pb2.RuntimeSandbox, token: int) -> AsyncGenerator[bytes]:
    """Yield workspace and home as a tar stream; user code stands still until it has ended.

    Raises:
        SandboxLost: As `packed`.
        LeaseLost: The token is not the one in force.
    """
    async with _started(sandbox, token, "fs.save") as call:
        async for data in _drained(call, f"what {sandbox.sandbox_id} holds"):
            yield data


async def _drained(call: AgentCall, what: str) -> AsyncGenerator[bytes]:
    while call.result is None:
        for event in await call.receive():
            if event.HasField("output"):
                yield event.output.data
    if call.result.is_error:
        detail = call.result.message
        raise SandboxLost(f"{what} cannot be read: {detail}", {"detail": detail})


async def unpacked(sandbox: driver_pb2.RuntimeSandbox, token: int, stream: AsyncIterator[bytes]) -> None:
    """Replace the workspace by a tar stream: all of it or nothing.

    Raises:
        SandboxStartFailed: The sandbox does not take it; the message says why.
        SandboxLost: Its agent does not answer.
        LeaseLost: The token is not the one in force.
    """
    async with _started(sandbox, token, "fs.unpack", takes_input=True, any_links=True) as call:
        await _fed(call, stream, "the saved workspace")


async def profile_unpacked(sandbox: driver_pb2.RuntimeSandbox, token: int, stream: AsyncIterator[bytes]) -> None:
    """Place the profile of the browser, which has not run yet, from a tar stream: all of it or nothing.

    Raises:
        SandboxStartFailed, SandboxLost, LeaseLost: As `unpacked`.
    """
    async with _started(sandbox, token, "browser.profile.unpack", takes_input=True) as call:
        await _fed(call, stream, "the browser's saved profile")


async def restored(sandbox: driver_pb2.RuntimeSandbox, token: int, stream: AsyncIterator[bytes]) -> None:
    """Replace workspace and home by what `saved` yielded: all of it or nothing.

    Raises:
        SandboxStartFailed, SandboxLost, LeaseLost: As `unpacked`.
    """
    async with _started(sandbox, token, "fs.restore", takes_input=True) as call:
        await _fed(call, stream, "the snapshot")


async def kernels_saved(
    sandbox: driver_pb2.RuntimeSandbox, token: int, socket: str, seconds: float
) -> tuple[list[str], list[str]]:
    """Save the memory of the agent's Python kernels to a socket of this name beside its own.

    Returns: the kernels' ids, and what they have and their copies lack.

    Raises:
        WrongState: A kernel cannot be copied, or its cells did not end in so many seconds; the message says why.
        SandboxLost, LeaseLost: As `packed`.
    """
    async with _started(sandbox, token, "kernels.save", socket=socket, timeout=max(1, round(seconds))) as call:
        await call.wait()
        if call.result is None or call.result.is_error:
            message = call.result.message if call.result is not None else "its agent did not answer"
            raise WrongState(message, {"state": "KERNELS", "sandbox_id": sandbox.sandbox_id})
        found = json.loads(call.result.structured_json)
        return list(found["kernels"]), list(found["not_copied"])


async def kernels_restored(sandbox: driver_pb2.RuntimeSandbox, token: int, socket: str) -> None:
    """Continue in the agent the kernels that come from a socket of this name beside its own.

    Raises:
        SandboxStartFailed: One does not run here; the message says why.
        SandboxLost, LeaseLost: As `packed`.
    """
    async with _started(sandbox, token, "kernels.restore", socket=socket) as call:
        await call.wait()
        if call.result is None or call.result.is_error:
            detail = call.result.message if call.result is not None else "its agent did not answer"
            raise SandboxStartFailed(f"the kernels cannot continue in the sandbox: {detail}", {"detail": detail})


async def _fed(call: AgentCall, stream: AsyncIterator[bytes], what: str) -> None:
    sequence = 0
    async for piece in stream:
        for at in range(0, len(piece), _CHUNK):
            sequence += 1
            await _put(call, call_pb2.Input(sequence=sequence, data=piece[at : at + _CHUNK]))
    if call.result is None:
        call.send(input=call_pb2.Input(sequence=sequence + 1, end=True))
    while call.result is None:
        await call.receive()
    if call.result.is_error:
        detail = call.result.message
        raise SandboxStartFailed(f"{what} does not go into the sandbox: {detail}", {"detail": detail})


async def _put(call: AgentCall, item: call_pb2.Input) -> None:
    while call.result is None and (item.sequence - call.acknowledged_input) * _CHUNK > _WINDOW:
        await call.receive()
    if call.result is None:
        call.send(input=item)
        await call.drain()

"""An instance of an environment: a process that serves one request at a time."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.shared import frames
from sandmesh.shared.frames import FrameBuffer
from sandmeshd.agent.mcp.manager.stderr_tail import StderrTail
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.tools.training.failures import FAILED, REFUSED, EpisodeFailure
from sandmeshd.agent.tools.training.host import EnvironmentHost, describe

MAX_REPLY: Final = 16 << 20
_END_SECONDS: Final = 5.0
_TOO_LARGE: Final = f"it replied with more than {MAX_REPLY >> 20} MiB"


@dataclass(frozen=True)
class Request:
    """A request: what to do, and for how many seconds at most."""

    op: str
    arguments: Mapping[str, Any]
    seconds: float


class InstanceProcess(asyncio.Protocol):
    """A running instance. `failure` is why it ended, None while it runs."""

    def __init__(self, host: EnvironmentHost, number: int, memory: Memory) -> None:
        self._host = host
        self._number = number
        self._memory = memory
        self._oom_kills = memory.oom_kills()
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer(MAX_REPLY)
        self._reply: asyncio.Future[dict[str, Any]] | None = None
        self._output = StderrTail()
        self._exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.failure: EpisodeFailure | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._reply is not None

    async def open(self) -> None:
        """Start the process."""
        ours, theirs = socket.socketpair()
        with theirs:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)
            await self._host.start(self._number, theirs.fileno(), self._output.writer, self._note_exit)
        self._output.close_writer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take a reply; an invalid one ends the instance."""
        try:
            for frame in self._buffer.feed(data):
                self._settle(json.loads(frame))
        except frames.FrameTooLarge:
            self._break(_TOO_LARGE, "limit")
        except (ValueError, TypeError, AttributeError, RecursionError):
            self._break("it broke its protocol", "task")

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the process has gone."""
        self._transport = None
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionResetError())

    async def run(self, request: Request) -> Any:
        """Carry out a request.

        Raises:
            EpisodeFailure: The environment refused; or the instance has ended, now or before.
        """
        if self.failure is not None:
            raise self.failure
        self._reply = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": self._number, "op": request.op, "arguments": dict(request.arguments)})
            async with asyncio.timeout(request.seconds):
                reply = await self._reply
        except TimeoutError:
            why = f"{request.op} took longer than {request.seconds:g} s"
            raise self._break(why, "limit", reason=pb.END_REASON_TIMED_OUT) from None
        except ConnectionResetError:
            raise self.failure or await self._died(request.op) from None
        except asyncio.CancelledError:
            self._break(f"the call of {request.op} was cancelled", "infra", reason=pb.END_REASON_CANCELLED)
            raise
        finally:
            self._reply = None
        if "refused" in reply:
            raise EpisodeFailure(REFUSED, str(reply["refused"]))
        if "failed" in reply:
            raise self._break(f"{request.op} raised {reply['failed']}", "task")
        return reply.get("result")

    async def close(self) -> None:
        """Close the environment, and kill its process if that takes long."""
        if self._transport is not None:
            self._transport.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await asyncio.shield(self._exited)
        except TimeoutError:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process."""
        if self._transport is not None:
            self._transport.abort()
        self._host.kill(self._number)
        self._output.close()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._transport is None:
            raise ConnectionResetError
        self._transport.write(frames.pack(json.dumps(message).encode()))

    def _settle(self, reply: dict[str, Any]) -> None:
        if self._reply is not None and not self._reply.done() and reply.get("id") == self._number:
            self._reply.set_result(reply)

    def _note_exit(self, status: int | None) -> None:
        if not self._exited.done():
            self._exited.set_result(status)

    async def _died(self, op: str) -> EpisodeFailure:
        try:
            async with asyncio.timeout(_END_SECONDS):
                how, ended_by = describe(await asyncio.shield(self._exited))
        except TimeoutError:
            how, ended_by = "it closed its connection", None
        if ended_by == signal.SIGKILL and self._memory.oom_kills() > self._oom_kills:
            return self._break(self._memory.out_of_memory_message(), "limit", reason=pb.END_REASON_OUT_OF_MEMORY)
        reason = pb.END_REASON_KILLED if ended_by is not None else pb.END_REASON_EXITED
        return self._break(f"its process ended during {op} ({how})", "task", reason=reason)

    def _break(self, why: str, fault: str, *, reason: int = pb.END_REASON_EXITED) -> EpisodeFailure:
        """Kill the instance and return the failure that it ended with, which its later requests have too."""
        self.kill()
        if self.failure is None:
            message = f"The instance ended: {why.rstrip('.')}."
            words = self._output.lines()
            self.failure = EpisodeFailure(FAILED, message, fault=fault, last_words=words, reason=reason)
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionResetError())
        return self.failure

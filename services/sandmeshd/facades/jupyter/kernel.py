"""A notebook's kernel: requests of its clients one after another, and the messages that they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from sandmesh import SandboxAsync
from sandmesh.errors import NotFound, SandboxLost, SandmeshError, WrongState
from sandmesh.events import InputRequested
from sandmesh.sandbox.kernels import KernelAsync
from sandmeshd.facades.answers import RequestError
from sandmeshd.facades.cells import ends_in_value
from sandmeshd.facades.jupyter.messages import NotebookMessage
from sandmeshd.facades.jupyter.outputs import CellOutput, Content
from sandmeshd.facades.jupyter.questions import QUESTIONS, expressions
from sandmeshd.facades.jupyter.sockets import Audience, NotebookClient
from sandmeshd.facades.jupyter.specs import KernelSpec
from sandmeshd.facades.jupyter.turns import KernelQueue, PendingInput

_ABORTED: Final = {"status": "aborted"}
_ENDED: Final = "the kernel's sandbox has ended: restart the kernel"

Opened = tuple[SandboxAsync, KernelAsync]


class NotebookKernel:
    """A kernel in a sandbox, for any number of clients."""

    def __init__(self, kernel_id: str, spec: KernelSpec, owner: str, make: Callable[[], Awaitable[Opened]]) -> None:
        self.id, self.spec, self.owner = kernel_id, spec, owner
        self.clients = Audience()
        self._state, self._last = "starting", datetime.now(UTC)
        self._make = make
        self._opened: Opened | None = None
        self._requests, self._input = KernelQueue(), PendingInput()
        self._count = 0
        self._work: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Make its sandbox and start to answer.

        Raises:
            SandmeshError: The sandbox or the kernel could not be started.
        """
        self._opened = await self._make()
        self._state = "idle"
        if self._work is None:
            self._work = asyncio.create_task(self._serve(), name="sandmesh-jupyter-kernel")

    @property
    def box(self) -> SandboxAsync | None:
        """Its sandbox."""
        return None if self._opened is None else self._opened[0]

    def described(self) -> Content:
        """Return it as `GET /api/kernels` has it."""
        times = {"last_activity": self._last.isoformat(), "execution_state": self._state}
        return {"id": self.id, "name": self.spec.name, **times, "connections": len(self.clients)}

    async def close(self) -> None:
        """Stop to answer, and tell the clients; the sandbox stays."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        await self._die()
        await self.clients.close("the kernel was deleted")

    async def interrupt(self) -> None:
        """Interrupt what runs, also where it waits for input."""
        _, kernel = self._usable()
        await kernel.interrupt()
        self._input.end()

    async def restart(self) -> None:
        """Restart the process, in a new sandbox where the old one has ended; what waits is aborted.

        Raises:
            SandmeshError: There is none.
        """
        self._requests.abort()
        self._count = 0
        await self._publish("status", {"execution_state": "restarting"}, {})
        if self._opened is None:
            await self.start()
        else:
            try:
                await self._opened[1].restart()
            except (SandboxLost, NotFound):
                await self._die()
                await self.start()
        self._input.end()
        await self._publish("status", {"execution_state": "idle"}, {})

    def leave(self, client: NotebookClient) -> None:
        """Forget a client that has gone; what waits for a line of it reads none."""
        self.clients.discard(client)
        self._input.end(client)

    async def receive(self, client: NotebookClient, message: NotebookMessage, size: int) -> None:
        """Take a message of a client, of so many bytes."""
        match message.channel, message.kind:
            case _, "input_reply":
                self._input.give(client, message.text("value"))
            case _, "interrupt_request":
                await self._control(client, message, self.interrupt)
            case _, "shutdown_request" if message.flag("restart", default=False):
                await self._control(client, message, self.restart)
            case ("control", "kernel_info_request"):
                await self._answer(client, message)
            case _:
                try:
                    self._usable()
                    self._requests.put(client, message, size)
                except RequestError as error:
                    await self.clients.reply(client, message, _failed(error))

    async def _control(
        self, client: NotebookClient, message: NotebookMessage, act: Callable[[], Awaitable[None]]
    ) -> None:
        content: Content = {"status": "ok", **({"restart": True} if act == self.restart else {})}
        try:
            await act()
        except (SandmeshError, RequestError) as error:
            content = _failed(error)
        await self.clients.reply(client, message, content)

    async def _serve(self) -> None:
        while True:
            request = await self._requests.take()
            client, message = request.client, request.message
            try:
                if self._requests.is_aborted(request):
                    await self.clients.reply(client, message, _ABORTED)
                else:
                    await self._answer(client, message)
            except (SandmeshError, RequestError) as error:
                if isinstance(error, SandboxLost | NotFound):
                    await self._die()
                await self.clients.reply(client, message, _failed(error))

    async def _answer(self, client: NotebookClient, message: NotebookMessage) -> None:
        """Answer a request, between the two states that its clients show."""
        await self._publish("status", {"execution_state": "busy"}, message.header)
        try:
            await self._respond(client, message)
        finally:
            self._last = datetime.now(UTC)
            if self._state != "dead":
                await self._publish("status", {"execution_state": "idle"}, message.header)

    async def _respond(self, client: NotebookClient, message: NotebookMessage) -> None:
        kind = message.kind
        if kind == "execute_request":
            await self._execute(client, message)
        elif kind == "kernel_info_request":
            await self.clients.reply(client, message, self.spec.info())
        elif kind in QUESTIONS:
            await self.clients.reply(client, message, await QUESTIONS[kind](self._usable()[1], message))
        elif kind == "history_request":
            await self.clients.reply(client, message, {"status": "ok", "history": list[object]()})
        elif kind == "comm_info_request":
            await self.clients.reply(client, message, {"status": "ok", "comms": Content()})
        elif kind == "comm_open":
            # As the protocol says of a target that there is none of: there are no widgets.
            content = {"comm_id": message.text("comm_id"), "data": Content()}
            await self._publish("comm_close", content, message.header)
        elif kind.endswith("_request"):
            await self.clients.reply(
                client, message, _failed(RequestError(501, f"{kind} is not offered by this kernel"))
            )

    async def _execute(self, client: NotebookClient, message: NotebookMessage) -> None:
        code, silent = message.text("code"), message.flag("silent", default=False)
        if not silent:
            self._count += message.flag("store_history", default=True)
            await self._publish("execute_input", {"code": code, "execution_count": self._count}, message.header)
        error = await self._run(client, message, code) if code.strip() else None
        content: Content = {"execution_count": self._count, "payload": list[object]()}
        if error is not None:
            if message.flag("stop_on_error", default=True):
                self._requests.abort()
            await self.clients.reply(client, message, {**content, "status": "error", **error})
            return
        values = await expressions(self._usable()[1], message)
        await self.clients.reply(client, message, {**content, "status": "ok", "user_expressions": values})

    async def _run(self, client: NotebookClient, message: NotebookMessage, code: str) -> Content | None:
        """Run a cell; return what it raised."""
        _, kernel = self._usable()
        silent = message.flag("silent", default=False)
        output = CellOutput(self._count, ends_in_value=ends_in_value(code, kernel.language))
        takes_input = message.flag("allow_stdin", default=True)
        async with kernel.stream(code, takes_input=takes_input) as events:
            async for event in events:
                if isinstance(event, InputRequested):
                    line = await self._line(client, message, event)
                    with suppress(WrongState):
                        await events.answer(line or "")
                    continue
                for kind, content in output.read(event):
                    if not silent or kind in {"stream", "error"}:
                        await self._publish(kind, content, message.header)
        if output.lost:
            await self._die()
        return output.error

    async def _line(self, client: NotebookClient, message: NotebookMessage, event: InputRequested) -> str | None:
        """Request a line of a client; None where the cell was interrupted, or the client has gone."""
        line = self._input.begin(client)
        await self.clients.request_input(client, message, {"prompt": event.prompt, "password": event.password})
        return await line if client in self.clients else None

    def _usable(self) -> Opened:
        if self._opened is None:
            raise RequestError(404, _ENDED)
        return self._opened

    async def _die(self) -> None:
        opened, self._opened, self._state = self._opened, None, "dead"
        self._input.end()
        if opened is not None:
            await opened[0].close()
            await self._publish("status", {"execution_state": "dead"}, {})

    async def _publish(self, kind: str, content: Mapping[str, Any], parent: Mapping[str, Any]) -> None:
        if kind == "status" and content["execution_state"] in {"busy", "idle"}:
            self._state = content["execution_state"]
        await self.clients.publish(kind, content, parent)


def _failed(error: Exception) -> Content:
    text = str(error)
    return {"status": "error", "ename": type(error).__name__, "evalue": text, "traceback": [text]}

"""What is alike in the stand-ins of a vendor's products: signed requests, faults, a ledger, a gateway behind TLS."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import trustme
from aiohttp import web

from tests.clouds.instances import start_instance
from tests.clouds.signatures import fault_of
from tests.unit.agent.sandbox import Ground

KEYS = {"LTAI-test": "secret-of-the-test"}


class Fault(Exception):
    """What a request is refused with."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message or f"{code} of the stand-in"


class Instance(Protocol):
    """A running instance of an image."""

    @property
    def exit_code(self) -> int | None:
        """How it ended, None while it runs."""
        ...

    @property
    def pid(self) -> int:
        """Its PID 1, as this machine has it."""
        ...

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to its port."""
        ...

    async def wait(self) -> None:
        """Wait until its health check answers."""
        ...

    def end(self) -> None:
        """End it."""
        ...


Launch = Callable[[Mapping[str, Any]], Instance]
"""Starts an instance of a container's configuration: image, port, command, processors and MiB of memory."""


@dataclass
class Session:
    """A session, and the line of the ledger that it is."""

    resource: str
    """What it is in: a function, or a runtime."""
    body: dict[str, Any]
    begun: float = field(default_factory=time.time)
    ended: float = 0.0
    status: str = "Active"
    instance: Instance | None = None
    started: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def made(self) -> str:
        """When it was made, as the API shows it."""
        return datetime.fromtimestamp(self.begun, UTC).isoformat().replace("+00:00", "Z")


@dataclass
class Region(ABC):
    """One product in one region."""

    mutations: ClassVar[tuple[str, ...]] = ()
    """The actions that make and delete what is billed, and what leads to it."""

    launch: Launch | None
    """None: instances never listen."""
    ledger: list[Session] = field(default_factory=list[Session])
    requests: Counter[str] = field(default_factory=Counter[str])
    """By action."""
    keys: dict[str, str] = field(default_factory=lambda: dict(KEYS))
    clock: float = 0.0
    """How many seconds its clock is ahead."""
    pending: int = 0
    """How often what is new is reported as not ready yet."""
    state: str = ""
    """What is new is reported as, then; empty: as ready."""
    delay: float = 0.0
    """Seconds that each request takes."""
    throttled: Counter[str] = field(default_factory=Counter[str])
    """How many more requests of an action are throttled."""
    lost: Counter[str] = field(default_factory=Counter[str])
    """How many more requests of an action fail after they took effect."""
    denied: set[str] = field(default_factory=set[str])
    """Actions that the keys have no right to."""
    cut_seconds: float = 0.0
    """After which the gateway cuts a WebSocket, 0 for never."""
    is_silent: bool = False
    """Whether the gateway closes every new connection: an outage."""
    unheard: asyncio.Queue[None] = field(default_factory=asyncio.Queue[None])
    """One for each that it closed so."""
    strips_upgrades: bool = False
    """Whether the gateway passes requests on without their upgrade to a WebSocket, as some proxies do."""
    cuts: int = 0
    """How many WebSockets the gateway cut."""
    port: int = 0
    host: str = "localhost"
    """The gateway's name in URLs; its certificate is for localhost."""
    gateway: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def endpoint(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def living(self) -> list[Session]:
        """The sessions that are billed now."""
        return [machine for machine in self.ledger if not machine.ended]

    @property
    def running(self) -> list[Session]:
        """The sessions whose instance runs."""
        return [
            machine for machine in self.ledger if machine.instance is not None and machine.instance.exit_code is None
        ]

    @abstractmethod
    def session_of(self, sandbox_id: str) -> Session:
        """Return the session of a sandbox that lives."""

    @abstractmethod
    async def act(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any] | None:
        """Do what a request asks for; return the answer, None for an empty one.

        Raises:
            Fault: It cannot be done.
        """

    @abstractmethod
    def routed(self, head: str) -> Session:
        """Return the session that a request to the gateway names by its path and header.

        Raises:
            Fault: There is none.
        """

    @abstractmethod
    def shape(self, fault: Fault, request_id: str) -> dict[str, Any]:
        """Return an error as the API answers it."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of the API."""
        action = request.headers.get("x-acs-action", "")
        self.requests[action] += 1
        await asyncio.sleep(self.delay)
        try:
            answer = await self._checked(request, action)
        except Fault as fault:
            return web.json_response(self.shape(fault, secrets.token_hex(8)), status=fault.status)
        return web.json_response(answer) if answer is not None else web.Response(status=204)

    async def _checked(self, request: web.Request, action: str) -> dict[str, Any] | None:
        refused = await fault_of(request, self.keys, self.clock)
        if refused:
            raise Fault(403, refused)
        if action in self.denied:
            raise Fault(403, "AccessDenied")
        if self.throttled[action] > 0:
            self.throttled[action] -= 1
            raise Fault(429, "ResourceExhausted")
        answer = await self.act(request, json.loads(await request.read() or b"{}"))
        if self.lost[action] > 0:
            self.lost[action] -= 1
            raise Fault(500, "InternalServerError")
        return answer

    def begin(self, made: Session, container: Mapping[str, Any], seconds: float = 0.0) -> Session:
        """Begin a session, billed from now on, that ends after some seconds; 0: that does not end by itself."""
        self.ledger.append(made)
        loop = asyncio.get_running_loop()
        made.started = loop.create_task(self._start(made, container))
        if seconds:
            made.timer = loop.call_later(seconds, self.finish, made, "Expired")
        return made

    async def _start(self, session: Session, container: Mapping[str, Any]) -> None:
        if self.launch is None:
            return
        # What an engine does takes a while, and others go on meanwhile.
        launching = asyncio.ensure_future(asyncio.to_thread(self.launch, container))
        try:
            made = await asyncio.shield(launching)
        except asyncio.CancelledError:
            (await launching).end()
            raise
        if session.ended:
            made.end()
            return
        session.instance = made
        await made.wait()

    def finish(self, session: Session, status: str) -> None:
        """End a session; it is not billed any more."""
        session.status = status
        session.ended = session.ended or time.time()
        if session.timer is not None:
            session.timer.cancel()
        if session.instance is not None:
            session.instance.end()

    async def route(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection to the instance that the affinity header names."""
        if self.is_silent:
            self.unheard.put_nowait(None)
            writer.close()
            return
        with suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            if self.strips_upgrades:
                lines = head.decode().split("\r\n")
                hop = ("upgrade", "connection", "sec-websocket")
                head = "\r\n".join(line for line in lines if not line.lower().startswith(hop)).encode()
            try:
                ends = await self._instance(head.decode())
            except Fault as fault:
                body = json.dumps({"ErrorCode": fault.code, "ErrorMessage": fault.message}).encode()
                refused = f"HTTP/1.1 {fault.status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(refused.encode() + body)
                writer.close()
                return
            ends[1].write(head)
            await self._carry((reader, writer), ends)

    async def _instance(self, head: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        session = self.routed(head)
        if session.started is not None:
            await asyncio.shield(session.started)
        if session.instance is None or session.instance.exit_code is not None:
            code = session.instance.exit_code if session.instance else 1
            raise Fault(502, "CAExited", f"Function instance exited unexpectedly(code {code})")
        try:
            return await session.instance.connect()
        except OSError as error:
            raise Fault(502, "FunctionNotReady", "Function instance does not listen") from error

    async def _carry(
        self,
        outer: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        inner: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        both = {outer[1], inner[1]}
        self.open |= both
        timer: asyncio.TimerHandle | None = None
        if self.cut_seconds:
            timer = asyncio.get_running_loop().call_later(self.cut_seconds, self._cut_one, both)
        try:
            await asyncio.gather(_pass_on(outer[0], inner[1]), _pass_on(inner[0], outer[1]))
        finally:
            self.open -= both
            if timer is not None:
                timer.cancel()

    def _cut_one(self, both: set[asyncio.StreamWriter]) -> None:
        self.cuts += 1
        _cut(both)

    def cut(self) -> None:
        """Cut every connection."""
        _cut(self.open)

    async def close(self) -> None:
        """End all instances."""
        for one in self.ledger:
            if one.started is not None:
                one.started.cancel()
                await asyncio.gather(one.started, return_exceptions=True)
            self.finish(one, one.status)
        self.cut()


def header(head: str, name: str) -> str:
    """Return a header of a request that the gateway received.

    Raises:
        Fault: It is missing.
    """
    wanted = [line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith(f"{name}: ")]
    if not wanted:
        raise Fault(400, "InvalidArgument", f"the header {name} is missing")
    return wanted[0]


def path_of(head: str) -> str:
    """Return the first part of the path of a request that the gateway received."""
    return head.split(" ", 2)[1].strip("/").partition("/")[0].partition("?")[0]


def _cut(writers: set[asyncio.StreamWriter]) -> None:
    for writer in list(writers):
        if not writer.transport.is_closing():
            writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    writer.close()


def launcher(ground: Ground | None, folder: Path) -> Launch | None:
    """Return what starts instances of the image's agent under bubblewrap, None without a ground."""
    if ground is None:
        return None
    return lambda container: start_instance(ground, container, folder / "instances.log")


Product = TypeVar("Product", bound=Region)


@asynccontextmanager
async def serving(made: Product, folder: Path) -> AsyncGenerator[Product]:
    """Serve a region; an authority at `folder`/authority.pem signed the gateway's certificate."""
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", made.serve)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        addresses: list[Any] = runner.addresses
        made.port = addresses[0][1]
        server = await asyncio.start_server(made.route, "127.0.0.1", 0, ssl=certified(folder), limit=1 << 20)
        stack.callback(server.close)
        made.gateway = server.sockets[0].getsockname()[1]
        stack.push_async_callback(made.close)
        yield made


def certified(folder: Path, name: str = "localhost") -> ssl.SSLContext:
    """Return a certificate for a host, signed by an authority that is written to `folder`/authority.pem."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Its types name a package that is not installed.
    issued: Any = authority.issue_cert(name)
    issued.configure_cert(context)
    return context

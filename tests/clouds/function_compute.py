"""Function Compute's API and gateway, as far as the driver uses them, with a ledger of what would be billed."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web

from tests.clouds.instances import Instance, start_instance
from tests.clouds.signatures import fault_of
from tests.unit.agent.sandbox import Ground

VERSION = "/2023-03-30"
KEYS = {"LTAI-test": "secret-of-the-test"}


class Fault(Exception):
    """What a request is refused with."""

    def __init__(self, status: int, code: str, message: str = "") -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message or f"{code} of the stand-in"


@dataclass
class Session:
    """A session, and the line of the ledger that it is."""

    function: str
    body: dict[str, Any]
    begun: float = field(default_factory=time.time)
    ended: float = 0.0
    status: str = "Active"
    instance: Instance | None = None
    started: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    def shown(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        made = datetime.fromtimestamp(self.begun, UTC).isoformat().replace("+00:00", "Z")
        return {**self.body, "functionName": self.function, "sessionStatus": self.status, "createdTime": made}


@dataclass
class Function:
    """A function."""

    body: dict[str, Any]
    pending: int = 0
    """How often it is still reported as Pending."""
    triggers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])


@dataclass
class StandIn:
    """One region."""

    ground: Ground | None
    folder: Path
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    ledger: list[Session] = field(default_factory=list[Session])
    requests: Counter[str] = field(default_factory=Counter[str])
    """By action."""
    keys: dict[str, str] = field(default_factory=lambda: dict(KEYS))
    clock: float = 0.0
    """How many seconds its clock is ahead."""
    pending: int = 0
    """How often a new function is reported as Pending."""
    state: str = "Active"
    """What a function is reported as, then."""
    throttled: Counter[str] = field(default_factory=Counter[str])
    """How many more requests of an action are throttled."""
    lost: Counter[str] = field(default_factory=Counter[str])
    """How many more requests of an action fail after they took effect."""
    denied: set[str] = field(default_factory=set[str])
    """Actions that the keys have no right to."""
    cut_seconds: float = 0.0
    """After which the gateway cuts a WebSocket, 0 for never."""
    used: set[str] = field(default_factory=set[str])
    """Ids of sessions that were."""
    port: int = 0
    gateway: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def endpoint(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def living(self) -> list[Session]:
        """The sessions that are billed now."""
        return [one for one in self.ledger if not one.ended]

    def session_of(self, sandbox_id: str) -> Session:
        """Return the session of a sandbox that lives."""
        return next(one for one in self.living if f"-{sandbox_id}-" in one.body["sessionId"])

    # The API.

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a request of the API."""
        action = request.headers.get("x-acs-action", "")
        self.requests[action] += 1
        number = secrets.token_hex(8)
        try:
            answer = await self._checked(request, action)
        except Fault as fault:
            # It has two shapes of errors.
            shape = (
                ("Code", "Message", "RequestId") if fault.status < 429 else ("errorCode", "errorMessage", "requestId")
            )
            body = dict(zip(shape, (fault.code, fault.message, number), strict=True))
            return web.json_response(body, status=fault.status)
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
        answer = await self._act(request)
        if self.lost[action] > 0:
            self.lost[action] -= 1
            raise Fault(500, "InternalServerError")
        return answer

    async def _act(self, request: web.Request) -> dict[str, Any] | None:
        parts = request.path.removeprefix(f"{VERSION}/functions").strip("/").split("/")
        body: dict[str, Any] = json.loads(await request.read() or b"{}")
        if parts == [""]:
            return self._create_function(body) if request.method == "POST" else self._list_functions(request)
        function = self._function(parts[0])
        if len(parts) == 1:
            if request.method == "DELETE":
                self._delete_function(parts[0], function)
                return None
            return self._get_function(function)
        kind = {"triggers": self._triggers, "sessions": self._sessions}[parts[1]]
        return kind(request, function, parts[2] if len(parts) > 2 else "", body)

    def _function(self, name: str) -> Function:
        if name not in self.functions:
            raise Fault(404, "FunctionNotFound")
        return self.functions[name]

    def _create_function(self, body: dict[str, Any]) -> dict[str, Any]:
        ratio = body["memorySize"] / 1024 / body["cpu"]
        if body["memorySize"] % 64 or round(body["cpu"] * 1000) % 50 or not 1 <= ratio <= 4.01:
            raise Fault(400, "InvalidArgument", f"no such size: {body['cpu']}, {body['memorySize']}")
        if body["functionName"] in self.functions:
            raise Fault(409, "FunctionAlreadyExists")
        self.functions[body["functionName"]] = Function(body, self.pending)
        return body

    def _get_function(self, function: Function) -> dict[str, Any]:
        if function.pending:
            function.pending -= 1
            return {**function.body, "state": "Pending"}
        return {**function.body, "state": self.state, "stateReason": f"the image is {self.state}"}

    def _list_functions(self, request: web.Request) -> dict[str, Any]:
        names = sorted(name for name in self.functions if name.startswith(request.query.get("prefix", "")))
        return _page(request, [self.functions[name].body for name in names], "functions")

    def _delete_function(self, name: str, function: Function) -> None:
        if function.triggers or any(one.status == "Active" for one in function.sessions.values()):
            raise Fault(409, "FunctionHasTriggersOrSessions")
        del self.functions[name]

    def _triggers(
        self, request: web.Request, function: Function, name: str, body: dict[str, Any]
    ) -> dict[str, Any] | None:
        if request.method == "POST":
            if function.triggers:
                raise Fault(409, "TriggerAlreadyExists")
            path = function.body["functionName"]
            url = {"urlInternet": f"https://localhost:{self.gateway}/{path}", "urlIntranet": ""}
            function.triggers[body["triggerName"]] = {**body, "httpTrigger": url}
            return function.triggers[body["triggerName"]]
        if name not in function.triggers:
            raise Fault(404, "TriggerNotFound")
        if request.method == "DELETE":
            del function.triggers[name]
            return None
        return function.triggers[name]

    def _sessions(
        self, request: web.Request, function: Function, name: str, body: dict[str, Any]
    ) -> dict[str, Any] | None:
        if request.method == "POST":
            if body["sessionId"] in self.used:
                raise Fault(409, "SessionAlreadyExists")
            return self._begin(function, body).shown()
        if request.method == "DELETE":
            found = function.sessions.pop(name, None)
            if found is None:
                raise Fault(404, "SessionNotFound")
            self._finish(found, "Deleted")
            return None
        wanted = request.query.get("sessionId")
        listed = [one.shown() for key, one in sorted(function.sessions.items()) if wanted in (None, key)]
        return _page(request, listed, "sessions")

    def _begin(self, function: Function, body: dict[str, Any]) -> Session:
        made = Session(function.body["functionName"], body)
        function.sessions[body["sessionId"]] = made
        self.used.add(body["sessionId"])
        self.ledger.append(made)
        loop = asyncio.get_running_loop()
        made.started = loop.create_task(self._start(function, made))
        made.timer = loop.call_later(body["sessionTTLInSeconds"], self._finish, made, "Expired")
        return made

    async def _start(self, function: Function, session: Session) -> None:
        if self.ground is None:
            return
        container = function.body["customContainerConfig"]
        made = start_instance(self.ground, container, self.folder / "instances.log")
        if session.ended:
            made.end()
            return
        session.instance = made
        await made.wait()

    def _finish(self, session: Session, status: str) -> None:
        session.status = status
        session.ended = session.ended or time.time()
        if session.timer is not None:
            session.timer.cancel()
        if session.instance is not None:
            session.instance.end()

    # The gateway.

    async def route(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection to the instance that the affinity header names."""
        with suppress(OSError, EOFError):
            head = await reader.readuntil(b"\r\n\r\n")
            try:
                ends = await self._instance(head.decode())
            except Fault as fault:
                body = json.dumps({"ErrorCode": fault.code, "ErrorMessage": fault.message}).encode()
                lines = f"HTTP/1.1 {fault.status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                writer.write(lines.encode() + body)
                writer.close()
                return
            ends[1].write(head)
            await self._carry((reader, writer), ends)

    async def _instance(self, head: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        session = self._routed(head)
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
            timer = asyncio.get_running_loop().call_later(self.cut_seconds, _cut, both)
        try:
            await asyncio.gather(_pass_on(outer[0], inner[1]), _pass_on(inner[0], outer[1]))
        finally:
            self.open -= both
            if timer is not None:
                timer.cancel()

    def _routed(self, head: str) -> Session:
        function = self._function(head.split(" ", 2)[1].strip("/").partition("/")[0].partition("?")[0])
        name = str(json.loads(function.body["sessionAffinityConfig"])["affinityHeaderFieldName"])
        wanted = [line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith(f"{name}: ")]
        if not wanted:
            raise Fault(400, "InvalidArgument", f"the header {name} is missing")
        session = function.sessions.get(wanted[0])
        if session is not None and session.status == "Active":
            return session
        if wanted[0] in self.used:
            raise Fault(404, "SessionNotFound", "the session ended, and its id is not used again")
        # A session that nobody made begins with the first request, and is billed.
        config = json.loads(function.body["sessionAffinityConfig"])
        return self._begin(function, {"sessionId": wanted[0], **config})

    def cut(self) -> None:
        """Cut every connection."""
        _cut(self.open)

    async def close(self) -> None:
        """End all instances."""
        for one in self.ledger:
            if one.started is not None:
                one.started.cancel()
                await asyncio.gather(one.started, return_exceptions=True)
            self._finish(one, one.status)
        self.cut()


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


def _page(request: web.Request, items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    begin, limit = int(request.query.get("nextToken") or 0), int(request.query.get("limit") or 20)
    rest = {"nextToken": str(begin + limit)} if len(items) > begin + limit else {}
    return {name: items[begin : begin + limit], **rest}


@asynccontextmanager
async def stand_in(folder: Path, ground: Ground | None = None) -> AsyncGenerator[StandIn]:
    """Serve a region; an authority at `folder`/authority.pem signed the gateway's certificate."""
    made = StandIn(ground, folder)
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
        server = await asyncio.start_server(made.route, "127.0.0.1", 0, ssl=_certified(folder), limit=1 << 20)
        stack.callback(server.close)
        made.gateway = server.sockets[0].getsockname()[1]
        stack.push_async_callback(made.close)
        yield made


def _certified(folder: Path) -> ssl.SSLContext:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Its types name a package that is not installed.
    issued: Any = authority.issue_cert("localhost")
    issued.configure_cert(context)
    return context

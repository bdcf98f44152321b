"""The HTTP front that facades share: addresses and TLS, host and origin checks, tokens of the mesh, health."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sandmesh.errors import InvalidArgument, MeshUnavailable, Unauthenticated
from sandmesh.mesh import MeshAsync, PrincipalInfo
from sandmeshd.runtime.addresses import is_open

HEALTH = "/healthz"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
GRACE_SECONDS = 1


class HttpListenSettings(BaseModel):
    """Where a facade listens for HTTP, and who may use it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    listen: tuple[str, ...]
    """Addresses as host:port; port 0 takes a free one."""

    tls_cert: Path | None = None
    """The certificate, with its chain, in PEM."""

    tls_key: Path | None = None
    """The certificate's key, in PEM."""

    require_token: bool | None = None
    """Whether clients must show a token of the mesh; none: where there is TLS or an address that is open to others."""

    allow_insecure: bool = False
    """Listen beyond loopback all the same where TLS is missing, or tokens are not required."""

    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may use for it besides its addresses, as host or host:port."""

    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use it, as https://host; its own addresses are always allowed."""

    @model_validator(mode="after")
    def _both_of_tls(self) -> HttpListenSettings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("give tls_cert and tls_key, or neither")
        return self

    @property
    def token_required(self) -> bool:
        """Whether clients must show a token."""
        if self.require_token is not None:
            return self.require_token
        return self.tls_cert is not None or any(is_open(address) for address in self.listen)

    def check_addresses(self, name: str) -> None:
        """Refuse addresses beyond loopback without TLS and tokens, unless the settings explicitly allow them.

        Raises:
            InvalidArgument: One is open to others and something that protects it is missing.
        """
        address = next((address for address in self.listen if is_open(address)), None)
        if address is None or self.allow_insecure:
            return
        if self.tls_cert is None:
            missing = "there is no TLS, so tokens and data could be read on the way"
            fix = "give --tls-cert and --tls-key (`sandmesh certificate` makes a pair for trials)"
        elif not self.token_required:
            missing, fix = "no token is required", "leave out --no-require-token"
        else:
            return
        message = (
            f"{name} does not listen at {address}, which is open to others: {missing}; {fix}, "
            "listen at 127.0.0.1, or say --allow-insecure"
        )
        raise InvalidArgument(message, {"address": address, "fix": fix})


class TokenCheck:
    """Checks tokens against the mesh, at each request: one that was revoked a moment ago is refused."""

    TIMEOUT_SECONDS = 10.0

    def __init__(self, base_url: str | None, *, required: bool) -> None:
        self._base_url = base_url
        self._required = required

    async def check(self, token: str | None) -> PrincipalInfo | None:
        """Return the principal of a request's token, None where it shows none and need not.

        Raises:
            Unauthenticated: There is none where one is required, or the mesh does not take it.
            SandmeshError: The mesh cannot be asked.
        """
        if token is None:
            if self._required:
                raise Unauthenticated("send a token of the mesh: `Authorization: Bearer ...`", {"token": "missing"})
            return None
        # The connection is that of the token's sessions, where it has some.
        async with MeshAsync(self._base_url, token, self.TIMEOUT_SECONDS) as mesh:
            return await mesh.whoami()


class HostCheck:
    """Checks by which names clients call a facade, and from which web pages.

    A page of another site could otherwise reach a loopback address through a browser, by a name that it points there.
    """

    def __init__(self, settings: HttpListenSettings, bound: Sequence[str]) -> None:
        ports = {address.rpartition(":")[2] for address in bound}
        loopback = {f"{host}:{port}" for host in LOOPBACK for port in ports}
        self._hosts = {*bound, *loopback, *settings.allowed_hosts}
        self._origins = set(settings.allowed_origins)
        # Beyond loopback a token protects, and how clients name this machine is not ours to know.
        self._any_host = not settings.allowed_hosts and any(is_open(address) for address in settings.listen)

    def allows_host(self, host: str) -> bool:
        """Return whether a request may name this host."""
        return self._any_host or host in self._hosts or host.rpartition(":")[0] in self._hosts

    def allows_origin(self, origin: str | None) -> bool:
        """Return whether a page of this origin may send requests; programs that are not browsers name none."""
        return origin is None or origin in self._origins or urlsplit(origin).netloc in self._hosts


class HttpFront:
    """The ASGI application before a facade's own: only requests that name an allowed host and origin pass."""

    def __init__(
        self, name: str, application: ASGIApp, hosts: HostCheck, refuse: Callable[[int, str], Response]
    ) -> None:
        self._name = name
        self._application = application
        self._hosts = hosts
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request, application = Request(scope, receive), self._application
        if not self._hosts.allows_host(request.headers.get("host", "")):
            message = f"this name is not {self._name}'s: call it by its address, or see --allowed-host"
            application = self._refuse(421, message)
        elif not self._hosts.allows_origin(request.headers.get("origin")):
            application = self._refuse(403, f"pages of this origin may not use {self._name}: see --allowed-origin")
        elif request.url.path == HEALTH:
            application = PlainTextResponse("ok\n")
        await application(scope, receive, send)


def bearer_token(request: Request) -> str | None:
    """Return the token that a request shows, None where it shows none."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if kind.lower() == "bearer" else None


class _SignallessServer(uvicorn.Server):
    """A server that leaves signals to its process."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


@asynccontextmanager
async def serve_http(
    name: str, settings: HttpListenSettings, application: ASGIApp, refuse: Callable[[int, str], Response]
) -> AsyncGenerator[tuple[str, ...]]:
    """Serve a facade behind the front until the block ends. Yields the URLs of its addresses.

    `refuse` makes the response to a request that does not pass, of a status and a message.

    Raises:
        InvalidArgument: An address is open to others without what protects it, or a certificate cannot be used.
        MeshUnavailable: An address cannot be listened at.
    """
    settings.check_addresses(name)
    with ExitStack() as stack:
        sockets = [stack.enter_context(bind(address)) for address in settings.listen]
        bound = [socket_address(one) for one in sockets]
        front = HttpFront(name, application, HostCheck(settings, bound), refuse)
        server = _SignallessServer(_configuration(front, settings))
        serving = asyncio.create_task(server.serve(sockets), name="sandmesh-facade-http")
        scheme = "http" if settings.tls_cert is None else "https"
        try:
            yield tuple(f"{scheme}://{address}" for address in bound)
        finally:
            server.should_exit = True
            await serving


def _configuration(application: ASGIApp, settings: HttpListenSettings) -> uvicorn.Config:
    configuration = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    try:
        configuration.load()
    except OSError as error:
        raise InvalidArgument(f"the certificate {settings.tls_cert} or its key cannot be used: {error}") from None
    return configuration


def bind(address: str) -> socket.socket:
    """Listen at host:port.

    Raises:
        InvalidArgument: It has another form.
        MeshUnavailable: It cannot be listened at.
    """
    host, found, port = address.rpartition(":")
    if not found or not host or not port.isdecimal():
        raise InvalidArgument(f"{address!r} is not an address to listen at: write host:port", {"address": address})
    bare = host.strip("[]")
    try:
        kind = socket.getaddrinfo(bare, int(port), type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((bare, int(port)), family=kind)
    except (OSError, OverflowError) as error:
        message = f"cannot listen at {address} for HTTP: {error}; free it or choose another address"
        raise MeshUnavailable(message, {"address": address}) from None


def socket_address(bound: socket.socket) -> str:
    """Format a socket's address as host:port."""
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

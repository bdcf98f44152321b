"""TLS that ends in the proxy: as a secret's host towards the program inside, and as a client towards that host."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from sandmesh.api.driver.v1 import driver_pb2
from sandmesh.shared.hosts import read_host
from sandmeshd.auth.sealer import Sealer
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget
from sandmeshd.drivers.egress.secrets.relay import HostFailure, SecretRelay
from sandmeshd.drivers.egress.secrets.table import SecretTable, read_secrets
from sandmeshd.drivers.egress.secrets.tls import TlsChannel
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.streams import PIECE_BYTES, ProxyStream
from sandmeshd.drivers.egress.upstream.dialer import TargetUnreachable
from sandmeshd.drivers.egress.upstream.outlets import Connection
from sandmeshd.drivers.egress.upstream.tunnels import ended

if TYPE_CHECKING:
    from sandmeshd.drivers.egress.secrets.authority import CertificateAuthority

Connect = Callable[[EgressTarget], Awaitable[Connection]]


@dataclass(frozen=True)
class Termination:
    """What ends the TLS of one sandbox at its secrets' hosts."""

    secrets: SecretTable
    authority: CertificateAuthority
    upstream: ssl.SSLContext
    idle_seconds: float
    head_seconds: float
    sessions: dict[EgressTarget, ssl.SSLSession] = field(default_factory=dict[EgressTarget, ssl.SSLSession])
    """The last session with each host, which proved itself then: the next connection resumes it (RFC 8446, 2.2)."""

    async def serve(
        self, stream: ProxyStream, first: bytes, target: EgressTarget, raw: Connection, connect: Connect
    ) -> None:
        """Relay between the program inside, to which it is the host, and the host at the end of `raw`.

        Raises:
            Refused: The program does not trust the proxy, or a request has what its target must not get.
            OSError: One of the two is gone, or nothing moved for too long.
        """
        opened = [raw[1]]

        async def dial() -> TlsChannel:
            try:
                again = await connect(target)
            except TargetUnreachable as failure:
                raise HostFailure(str(failure)) from None
            opened.append(again[1])
            return await self._prove(target, again)

        # The host proves itself while the program does its part.
        proving = asyncio.create_task(self._prove(target, raw))
        try:
            inside = await self._greet(stream, first, target)
            relay = SecretRelay(inside, target, self.secrets, dial)
            await relay.run(proving, self.idle_seconds)
            await stream.end()
        finally:
            await ended([proving])
            for writer in opened:
                writer.close()

    async def _prove(self, target: EgressTarget, raw: Connection) -> TlsChannel:
        """Begin TLS with a host.

        Raises:
            HostFailure: Its certificate is not valid for its name, or it does not speak TLS.
        """
        reader, writer = raw
        session = self.sessions.get(target)
        wrap = partial(self.upstream.wrap_bio, server_side=False, server_hostname=target.host, session=session)

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        def resumable(session: ssl.SSLSession) -> None:
            self.sessions[target] = session

        channel = TlsChannel(wrap, lambda: reader.read(PIECE_BYTES), write, resumable=resumable)
        try:
            async with asyncio.timeout(self.head_seconds):
                await channel.handshake()
        except TimeoutError:
            raise HostFailure(f"{target} does not answer in time") from None
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or str(error)
            raise HostFailure(f"{target} does not prove by TLS that it is that host: {why}") from None
        except OSError as error:
            raise HostFailure(f"{target} closed the connection: {error}") from None
        return channel

    async def _greet(self, stream: ProxyStream, first: bytes, target: EgressTarget) -> TlsChannel:
        wrap = partial(self.authority.context(target.host).wrap_bio, server_side=True)
        inside = TlsChannel(wrap, stream.read, stream.write, first)
        try:
            async with asyncio.timeout(self.head_seconds):
                await inside.handshake()
        except ssl.SSLError as error:
            raise _unfit(target, error) from None
        return inside


def terminations(settings: EgressSettings) -> Callable[[driver_pb2.RuntimeSandbox], Termination | None]:
    """Return what makes the termination of a sandbox; of one without secrets it makes None.

    Raises:
        InvalidArgument: The file of certificates cannot be read.
    """
    made: list[ssl.SSLContext] = []

    def make(sandbox: driver_pb2.RuntimeSandbox) -> Termination | None:
        if not sandbox.spec.secrets or settings.mesh_secret is None:
            return None
        if not made:
            made.append(_upstream_context(settings))
        secrets = read_secrets(sandbox.spec.secrets, Sealer(settings.mesh_secret.get_secret_value()))
        authority = authority_of(sandbox, settings)
        return Termination(SecretTable(secrets), authority, made[0], settings.idle_seconds, settings.head_seconds)

    return make


def authority_of(sandbox: driver_pb2.RuntimeSandbox, settings: EgressSettings) -> CertificateAuthority:
    """Return the certificate authority of a sandbox with secrets."""
    if settings.mesh_secret is None:
        raise ValueError("secrets need the mesh's secret")
    hosts = [read_host(host) for secret in sandbox.spec.secrets.values() for host in secret.hosts]
    unique = sorted(set(hosts), key=str)
    # Drivers without such sandboxes never load what makes certificates.
    module = import_module("sandmeshd.drivers.egress.secrets.authority")
    made: CertificateAuthority = module.CertificateAuthority(
        settings.mesh_secret.get_secret_value(), sandbox.sandbox_id, unique
    )
    return made


def _upstream_context(settings: EgressSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if settings.ca_file is not None:
        context.load_verify_locations(settings.ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _unfit(target: EgressTarget, error: ssl.SSLError) -> EgressRefused:
    reason = error.reason or "it closed the connection"
    if "ALERT" in reason or "EOF" in reason:
        what = f"a program inside does not trust the certificate that stands for {target} ({reason})"
        fix = "Let it trust the file in SSL_CERT_FILE, and pin no certificate: the host is one of a secret's."
        return EgressRefused(target.host, target.port, what, fix)
    what = f"a program inside does not speak TLS to {target}, a secret's host ({reason})"
    return EgressRefused(target.host, target.port, what, "Use https:// there.")

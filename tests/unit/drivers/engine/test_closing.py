"""A driver that ends leaves no connection to its engine open, also where that is slow to say goodbye."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trustme

from sandmeshd.drivers.engine.engine import open_engine

ANSWER = b'{"ApiVersion": "1.41"}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"


class SlowEngine:
    """Answers each request on a connection of its own over TLS, and says goodbye only when it is let."""

    def __init__(self, listening: socket.socket, context: ssl.SSLContext) -> None:
        self.port: int = listening.getsockname()[1]
        self.own = set[str]()
        """Its ends of the connections, as /proc names them."""
        self.let = threading.Event()
        self._listening = listening
        self._context = context
        self._serving: list[threading.Thread] = []

    def accept(self) -> None:
        """Serve clients until nobody listens."""
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self.own.add(f"socket:[{os.fstat(client.fileno()).st_ino}]")
                self._serving.append(threading.Thread(target=self._serve, args=(client,)))
                self._serving[-1].start()

    def join(self) -> None:
        """Wait until every client is served."""
        for serving in self._serving:
            serving.join()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), self._context.wrap_socket(client, server_side=True) as wrapped:
            wrapped.recv(1 << 16)
            wrapped.sendall(HEAD % len(ANSWER) + ANSWER)
            self.let.wait(20)


@contextmanager
def _slow_engine(authority: Any) -> Generator[SlowEngine]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        engine = SlowEngine(listening, context)
        accepting = threading.Thread(target=engine.accept)
        accepting.start()
        try:
            yield engine
        finally:
            engine.let.set()
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            engine.join()


def _sockets() -> set[str]:
    found = set[str]()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(str(entry.readlink()))
    return {target for target in found if target.startswith("socket:")}


async def test_what_was_let_go_over_tls_is_closed_when_the_driver_ends() -> None:
    authority: Any = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with _slow_engine(authority) as slow:
        before = _sockets()
        async with open_engine(f"tcp://127.0.0.1:{slow.port}", trusting) as engine:
            assert await engine.info() == {"ApiVersion": "1.41"}
            opened = _sockets() - before - slow.own
        assert opened
        assert not opened & _sockets()

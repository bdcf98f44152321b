"""The way out of a step: connections to the proxy's port go to the build's own socket, which decides."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

_PIECE: Final = 1 << 16
_CONNECTIONS: Final = 64


def start_relay(port: int, path: str) -> None:
    """Listen at a port of the loopback, and pass what comes to a unix socket.

    Raises:
        OSError: The port is in use.
    """
    listener = socket.create_server(("127.0.0.1", port), backlog=_CONNECTIONS)
    threading.Thread(target=_accept, args=(listener, path), daemon=True).start()


def _accept(listener: socket.socket, path: str) -> None:
    slots = threading.Semaphore(_CONNECTIONS)
    while True:
        inside, _ = listener.accept()
        slots.acquire()
        threading.Thread(target=_serve, args=(inside, path, slots), daemon=True).start()


def _serve(inside: socket.socket, path: str, slots: threading.Semaphore) -> None:
    try:
        with inside, socket.socket(socket.AF_UNIX) as outside, suppress(OSError):
            outside.connect(path)
            back = threading.Thread(target=_pass_on, args=(outside, inside), daemon=True)
            back.start()
            _pass_on(inside, outside)
            back.join()
    finally:
        slots.release()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_PIECE):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)

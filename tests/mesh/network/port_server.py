"""A server that runs inside a sandbox, with the standard library alone."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MORE = threading.Event()
SEEN = threading.Event()
SCRIPT = """
const socket = new WebSocket("ws://" + location.host + "/ws");
socket.onopen = () => socket.send(document.title);
socket.onmessage = (message) => fetch("/seen", {method: "POST", body: message.data + " " + location.pathname});
"""


class Handler(BaseHTTPRequestHandler):
    """Answers what the tests ask."""

    protocol_version = "HTTP/1.1"
    posted = b""

    def do_GET(self) -> None:
        """Choose by path."""
        name = self.path.split("/")[1].split("?")[0]
        getattr(self, f"answer_{name or 'echo'}")()

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815 - as the library names them

    def answer_echo(self) -> None:
        """Echo the request."""
        length = int(self.headers.get("Content-Length", 0))
        request = {
            "method": self.command,
            "path": self.path,
            "headers": list(self.headers.items()),
            "body": self.rfile.read(length).decode(),
        }
        self.send(200, json.dumps(request).encode(), "application/json")

    def answer_length(self) -> None:
        """Count the body."""
        left, count = int(self.headers["Content-Length"]), 0
        while count < left:
            count += len(self.rfile.read(min(65536, left - count)))
        self.send(200, str(count).encode())

    def answer_large(self) -> None:
        """Send a number of bytes."""
        self.send(200, b"x" * int(self.path.rpartition("/")[2]))

    def answer_switch(self) -> None:
        """Answer that another protocol follows, whatever was asked."""
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"
        )
        self.close_connection = True

    def answer_held(self) -> None:
        """Begin to answer, and go no further."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"begun")
        threading.Event().wait(60)

    def answer_next(self) -> None:
        """Resume the stream of events."""
        MORE.set()
        self.send(200, b"")

    def answer_events(self) -> None:
        """Send one event, and another on demand."""
        MORE.clear()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: 1\n\n")
        self.wfile.flush()
        MORE.wait(30)
        self.wfile.write(b"data: 2\n\n")

    def answer_page(self) -> None:
        """Send a page whose links begin with a slash, as development servers do."""
        self.send(200, b'<title>a page</title><script src="/static/script"></script>', "text/html")

    def answer_static(self) -> None:
        """Send what the page links to."""
        self.send(200, SCRIPT.encode(), "text/javascript")

    def answer_seen(self) -> None:
        """Note what the page posts, and give it to whoever waits for it."""
        if self.command == "POST":
            Handler.posted = self.rfile.read(int(self.headers["Content-Length"]))
            SEEN.set()
        SEEN.wait(60)
        self.send(200, self.posted)

    def answer_redirect(self) -> None:
        """Send elsewhere, with a cookie."""
        self.send_response(302)
        self.send_header("Location", "/echo")
        self.send_header("Set-Cookie", "a=b; Path=/; Domain=localhost")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer_ws(self) -> None:
        """Echo messages of a WebSocket until one says bye."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.send_header("Sec-WebSocket-Protocol", "chat")
        self.end_headers()
        code, data = self.frame()
        while data != b"bye" and code != 8:
            self.send_frame(code, data)
            code, data = self.frame()
        self.send_frame(8, struct.pack(">H", 4001) + b"as agreed")
        self.close_connection = True

    def frame(self) -> tuple[int, bytes]:
        """Read a frame that fits in one."""
        code, length = self.rfile.read(2)
        length &= 127
        if length == 126:
            (length,) = struct.unpack(">H", self.rfile.read(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self.rfile.read(8))
        mask = self.rfile.read(4)
        data = self.rfile.read(length)
        whole = int.from_bytes(data, "big") ^ int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        return code & 15, whole.to_bytes(length, "big")

    def send_frame(self, code: int, data: bytes) -> None:
        """Write a frame."""
        length = len(data)
        head = bytes([128 | code, length]) if length < 126 else bytes([128 | code, 127]) + struct.pack(">Q", length)
        self.wfile.write(head + data)

    def send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        """Write an answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()

"""A receiver of webhooks: a process that writes each request to a file, and refuses every second one.

    receiver.py PORT FILE PARTS

Of PARTS requests it accepts one; what it refused it does not write.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

PORT, FILE, PARTS = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
numbers = count()


class Receiver(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_POST(self) -> None:
        """Accept the request, or refuse it."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        accepted = next(numbers) % PARTS == 0
        if accepted:
            with FILE.open("a") as file:
                file.write(json.dumps({"headers": dict(self.headers), "body": body}) + "\n")
        self.send_response(204 if accepted else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        """Log nothing."""


server = ThreadingHTTPServer(("127.0.0.1", PORT), Receiver)
print(server.server_address[1], flush=True)  # noqa: T201 - the caller reads the port
server.serve_forever()

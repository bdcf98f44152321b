"""A receiver of webhooks: a process that writes each request to a file, and refuses every second one.

    receiver.py PORT FILE PARTS [TEXT]

Of PARTS requests it accepts one, and none that has the text; what it refused it does not write. With 0 PARTS it
answers nothing at all.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

PORT, FILE, PARTS = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
REFUSED = sys.argv[4] if len(sys.argv) > 4 else ""
numbers = count()


class Receiver(BaseHTTPRequestHandler):
    """Answers one request."""

    def do_POST(self) -> None:
        """Accept the request, or refuse it."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if not PARTS:
            threading.Event().wait()
        accepted = next(numbers) % PARTS == 0 and not (REFUSED and REFUSED in body)
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

"""A small web shop for models that use a computer. It runs inside a sandbox and writes orders to order.json.

Its parts stand where a script can find them: what a model would read from a screenshot.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SHOP = """<!DOCTYPE html><meta charset=utf-8><title>Tea shop</title>
<style>body { margin: 0; height: 2000px; font: 20px sans-serif }
button, input, output { position: absolute; margin: 0 }</style>
<button id=green style="left:100px;top:100px;width:200px;height:60px">Green</button>
<button id=black style="left:400px;top:100px;width:200px;height:60px">Black</button>
<input id=name placeholder=Name style="left:100px;top:200px;width:400px;height:40px">
<input id=count type=range min=1 max=9 value=1 style="left:100px;top:300px;width:400px;height:40px">
<output id=said style="left:100px;top:400px">Nothing is chosen</output>
<button id=order style="left:100px;top:1500px;width:200px;height:60px">Order</button>
<script>
let tea = '';
for (const each of [green, black]) each.onclick = () => { tea = each.id; said.textContent = tea };
black.ondblclick = () => { tea = 'strong black'; said.textContent = tea };
order.onclick = async () => {
  await fetch('/order', {method: 'POST', body: JSON.stringify({tea, name: name_.value, count: +count.value})});
  document.title = 'Thank you';
};
const name_ = document.getElementById('name');
</script>"""


class Shop(BaseHTTPRequestHandler):
    """The shop's page, and its orders."""

    def do_GET(self) -> None:
        """Send the page."""
        self._send(SHOP.encode())

    def do_POST(self) -> None:
        """Keep the order."""
        size = int(self.headers["Content-Length"])
        Path("order.json").write_bytes(self.rfile.read(size))
        self._send(b"")

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library names it
        """Write nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()

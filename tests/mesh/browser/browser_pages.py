"""A server of pages for the browser's tests, which runs inside a sandbox with the standard library alone."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGES = {
    "/": """<title>Shop</title><h1>Welcome</h1>
<form action="/order"><label>Name <input name="name"></label>
<label>Gift <input type="checkbox" name="gift" value="yes"></label>
<label>Size <select name="size"><option>small</option><option>large</option></select></label>
<button>Order</button></form><a href="/second">Second</a> <a href="/file.csv">Table</a>
<a href="/second" target="_blank">Elsewhere</a>""",
    "/second": "<title>Second</title><h1>The second page</h1><p id=late></p>"
    "<script>setTimeout(() => { late.textContent = 'It came late' }, 300)</script>",
    "/frame": "<title>Frame</title><h1>Outside</h1><iframe src='/inner'></iframe>",
    "/inner": "<button onclick=\"this.textContent = 'Pressed'\">Press</button>",
    "/dialog": "<title>Dialog</title><button onclick=\"out.textContent = prompt('Your name?', '') || 'nobody'\">Ask"
    "</button><p id=out></p>",
    "/upload": '<title>Upload</title><input type=file aria-label=File onchange="this.files[0].text().then('
    'text => out.textContent = text)"><p id=out></p>',
    "/hang": '<title>Hang</title><button onclick="for (;;) {}">Hang</button>',
    "/keys": "<title>Keys</title><input aria-label=Field autofocus onkeydown=\"out.textContent += event.key + ' '\">"
    "<p id=out></p><div id=from draggable=true role=button aria-label=From ondragstart="
    "\"event.dataTransfer.setData('text/plain', 'moved')\">From</div><div role=button aria-label=To "
    'ondragover="event.preventDefault()" onmouseenter="out.textContent += \'hovered \'" '
    "ondrop=\"event.preventDefault(); out.textContent += event.dataTransfer.getData('text/plain')\">To</div>",
    "/noise": "<title>Noise</title><script>console.log('hello from the page'); fetch('/missing');"
    "document.cookie = 'login=ada; max-age=600'; localStorage.setItem('cart', 'two apples')</script>",
}


class Handler(BaseHTTPRequestHandler):
    """Answers with a page by its path."""

    def do_GET(self) -> None:
        """Send the page, a file for download, or what a form sent."""
        path, _, query = self.path.partition("?")
        if path == "/order":
            self._send(200, f"<title>Order</title><p>{query}</p>".encode())
        elif path == "/file.csv":
            self._send(200, b"a,b\n1,2\n", {"Content-Disposition": "attachment; filename=file.csv"})
        elif path in PAGES:
            self._send(200, PAGES[path].encode())
        else:
            self._send(404, b"<title>Missing</title>")

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library names it
        """Write nothing."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    threading.Thread(target=server.serve_forever).start()

"""Servers in sandboxes at names of their own, by E2B's client: `sandmesh up --domain mesh.localhost`."""

import json
import time
import urllib.error
import urllib.request

from e2b import Sandbox

SERVER = """
import http.server, json

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"path": self.path, "host": self.headers["Host"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


def fetch(url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    request = urllib.request.Request(url, headers=headers or {})  # noqa: S310 - the client makes it
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def serve(sandbox: Sandbox, headers: dict[str, str] | None = None) -> str:
    """Start a server in a sandbox, and return its URL once it answers."""
    sandbox.files.write("server.py", SERVER)
    sandbox.commands.run("python3 server.py", background=True, timeout=0)
    url = f"https://{sandbox.get_host(8000)}/a?b=c"
    while fetch(url, headers)[0] == 502:
        time.sleep(0.05)
    return url


public = Sandbox.create(timeout=120)
url = serve(public)
status, body = fetch(url)
assert (status, json.loads(body)["path"]) == (200, "/a?b=c"), body
assert b"port is not open" in fetch(f"https://{public.get_host(8001)}/")[1]

private = Sandbox.create(timeout=120, network={"allow_public_traffic": False})
token = {"e2b-traffic-access-token": private.traffic_access_token or ""}
url = serve(private, token)
assert fetch(url, token)[0] == 200
assert fetch(url)[0] == 403
assert fetch(url, {"e2b-traffic-access-token": "wrong"})[0] == 403

# Signed URLs of files want no token.
public.files.write("report.txt", "all is well")
assert fetch(public.download_url("report.txt")) == (200, b"all is well")
assert fetch(public.download_url("report.txt").replace("report", "other"))[0] == 401

for sandbox in (public, private):
    assert sandbox.kill()
assert b"was not found" in fetch(url)[1]
print("every call answered")

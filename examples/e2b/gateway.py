"""MCP servers in a sandbox by E2B's own client: the mesh's tools by name, and a program out of a repository.

Servers are reached at names of their own: `sandmesh up --domain mesh.localhost`.
"""

import json
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from e2b import Sandbox, Template

HOME = "/home/user"
SERVER = """
import json, sys

def answer(request):
    if request["method"] == "initialize":
        about = {"name": "adder", "version": "1"}
        version = request["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if request["method"] == "tools/list":
        schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
        return {"tools": [{"name": "add", "description": "Add two numbers.", "inputSchema": schema}]}
    if request["method"] == "tools/call":
        given = request["params"]["arguments"]
        return {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}
    return {}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)
"""


class Client:
    """The least of an MCP client over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "trial", "version": "1"}}
        self.ask("initialize", about)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict) -> bytes:
        """Send a message; return the body of the answer."""
        request = urllib.request.Request(self.url, json.dumps(message).encode(), self.headers)  # noqa: S310 - the client's
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            if "mcp-session-id" in answer.headers:
                self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            return answer.read()

    def ask(self, method: str, params: dict) -> dict:
        """Send a request; return its result."""
        body = self.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).decode()
        data = [line[5:] for line in body.splitlines() if line.startswith("data:") and line[5:].strip()]
        return json.loads(data[-1] if data else body)["result"]

    def call(self, tool: str, **arguments: object) -> str:
        """Call a tool; return its text."""
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        return "".join(one.get("text", "") for one in result["content"])

    def tools(self) -> set[str]:
        """Return the names of the tools."""
        return {tool["name"] for tool in self.ask("tools/list", {})["tools"]}


# The mesh's own tools of files and git, and no others.
sandbox = Sandbox.create(timeout=120, mcp={"filesystem": {}, "git": {}})
token = sandbox.get_mcp_token()
assert token
client = Client(sandbox.get_mcp_url(), token)
tools = client.tools()
assert {"write_file", "read_file"} <= tools, tools
hidden = {"name": "run_shell_command", "arguments": {"command": "true"}}
assert "run_shell_command" not in tools
assert b'"error"' in client.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": hidden})
client.call("write_file", path="note.txt", content="by a tool")
assert sandbox.files.read("note.txt") == "by a tool"
assert Sandbox.connect(sandbox.sandbox_id).get_mcp_token() == token
try:
    Client(sandbox.get_mcp_url(), "wrong")
except urllib.error.HTTPError as error:
    assert error.code == 401, error
else:
    raise AssertionError("a wrong token was taken")
assert sandbox.kill()

# A server out of a repository; here of one in the sandbox itself, which git takes for GitHub's.
context = Path(tempfile.mkdtemp())
(context / "server.py").write_text(SERVER)
commit = "git init -q . && git add . && git -c user.name=a -c user.email=a@example.org commit -qm begin"
template = Template(file_context_path=context).from_template("mcp-gateway").copy("server.py", "acme/adder/")
Template.build(template.run_cmd(f"cd acme/adder && {commit}"), "trial-adder")
instead = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": f"url.file://{HOME}/acme/adder.insteadOf",
    "GIT_CONFIG_VALUE_0": "https://github.com/acme/adder",
}
sandbox = Sandbox.create(
    "trial-adder",
    timeout=120,
    envs=instead,
    mcp={"github/acme/adder": {"run_cmd": "python3 server.py", "install_cmd": "test -f server.py"}},
)
client = Client(sandbox.get_mcp_url(), sandbox.get_mcp_token() or "")
assert client.tools() == {"add"}
assert client.call("add", a=40, b=2) == "42"
assert sandbox.kill()
print("every call answered")

"""A server that speaks AgentBay's API over TLS, whose sessions are directories and whose tools really act in them."""

from __future__ import annotations

import base64
import json
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import trustme

KEY = "akm-test"
NOT_FOUND = {"Code": "InvalidMcpSession.NotFound", "Message": "The session does not exist.", "Success": False}
TOOLS = ("shell", "run_code", "get_file_info", "read_file", "write_file", "list_directory", "create_directory")
MORE_TOOLS = ("move_file", "delete_file", "system_screenshot", "page_use_navigate", "get_metrics")


@dataclass(frozen=True)
class Request:
    """A request as it arrived, without what differs from one to the next: time, nonce, and who reports itself."""

    target: str
    headers: tuple[tuple[str, str], ...]
    body: str


@dataclass
class AgentBayWorld:
    """What the server has and was asked."""

    root: Path
    address: str = ""
    authority: Path = Path()
    linked: bool = False
    """Whether sessions have an address of their own at which tools are called."""
    refusals: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict[str, tuple[int, Mapping[str, Any]]])
    """The response to an action that is refused."""
    requests: list[Request] = field(default_factory=list[Request])
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    links: list[str] = field(default_factory=list[str])
    """The tools that were called at sessions' own addresses."""

    @property
    def actions(self) -> list[str]:
        """The actions of all requests."""
        return [dict(parse_qsl(urlsplit(each.target).query))["Action"] for each in self.requests]

    def answer(self, action: str, form: Mapping[str, str]) -> tuple[int, Mapping[str, Any]]:
        """Return the status and the body of the response to an action."""
        if form.get("Authorization") != f"Bearer {KEY}":
            return 403, {"Code": "InvalidApiKey", "Message": "The API key is not valid.", "RequestId": "req-key"}
        if action in self.refusals:
            return self.refusals[action]
        session_id = form.get("SessionId", "")
        if session_id and session_id not in self.sessions:
            return 400, {**NOT_FOUND, "RequestId": "req-gone"}
        answered = {"RequestId": "req-1", "Success": True, "Code": "ok", "HttpStatusCode": 200}
        return 200, {**answered, **getattr(self, f"_{_snake(action)}")(form)}

    def _create_mcp_session(self, form: Mapping[str, str]) -> dict[str, Any]:
        session_id = f"session-{len(self.sessions) + 1}"
        (self.root / session_id).mkdir()
        labels = json.loads(form.get("Labels", "{}"))
        self.sessions[session_id] = {"labels": labels, "image": form.get("ImageId"), "status": "RUNNING"}
        return {"Data": {"Success": True, "SessionId": session_id, "ResourceUrl": "https://resource"}}

    def _get_session(self, form: Mapping[str, str]) -> dict[str, Any]:
        data = {"SessionId": form["SessionId"], "Success": True, "ResourceUrl": "https://resource"}
        if self.linked:
            listed = [{"name": name, "server": "wuying"} for name in (*TOOLS, *MORE_TOOLS)]
            link = {"LinkUrl": f"https://{self.address}/{form['SessionId']}", "Token": "link-token"}
            data |= {**link, "ToolList": json.dumps(listed)}
        return {"Data": data}

    def _get_session_detail(self, form: Mapping[str, str]) -> dict[str, Any]:
        return {"Data": {"SessionId": form["SessionId"], "Status": self.sessions[form["SessionId"]]["status"]}}

    def _get_mcp_resource(self, form: Mapping[str, str]) -> dict[str, Any]:
        desktop = {"AppId": "app", "ResourceId": "resource", "ResourceType": "Linux"}
        return {"Data": {"SessionId": form["SessionId"], "ResourceUrl": "https://resource", "DesktopInfo": desktop}}

    def _delete_session_async(self, form: Mapping[str, str]) -> dict[str, Any]:
        self.sessions[form["SessionId"]]["status"] = "FINISH"
        shutil.rmtree(self.root / form["SessionId"])
        return {}

    def _list_session(self, form: Mapping[str, str]) -> dict[str, Any]:
        wanted, size = json.loads(form["Labels"]).items(), int(form["MaxResults"])
        found = [name for name, each in self.sessions.items() if wanted <= each["labels"].items()]
        start = int(form.get("NextToken", 0))
        rest = str(start + size) if start + size < len(found) else ""
        listed = [{"SessionId": name, "SessionStatus": "RUNNING"} for name in found[start : start + size]]
        return {"Data": listed, "TotalCount": len(found), "MaxResults": size, "NextToken": rest}

    def _call_mcp_tool(self, form: Mapping[str, str]) -> dict[str, Any]:
        return {"Data": self.run(self.root / form["SessionId"], form["Name"], json.loads(form["Args"]))}

    def run(self, place: Path, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a tool in a session's directory."""
        run: Callable[[Path, Mapping[str, Any]], str] | None = _TOOLS.get(tool)
        if run is None:
            return _content(f"tool {tool} is unknown", failed=True)
        try:
            return _content(run(place, arguments))
        except OSError as error:
            return _content(f"{error.strerror}: {arguments.get('path', '')}", failed=True)


def _snake(action: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", action).lower()


def _content(text: str, *, failed: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def _run(place: Path, program: str, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, "-c", text], cwd=place, capture_output=True, text=True, check=False)


def _shell(place: Path, arguments: Mapping[str, Any]) -> str:
    done = _run(place, "/bin/sh", arguments["command"])
    return json.dumps({"exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr})


def _run_code(place: Path, arguments: Mapping[str, Any]) -> str:
    done = _run(place, sys.executable, arguments["code"])
    error = done.stderr.strip().rpartition("\n")[2]
    return json.dumps({"executionError": error, "result": [], "stdout": [done.stdout], "stderr": [done.stderr]})


def _get_file_info(place: Path, arguments: Mapping[str, Any]) -> str:
    found = place / arguments["path"]
    return f"size: {found.stat().st_size}\nisDirectory: {str(found.is_dir()).lower()}\npermissions: 644\n"


def _read_file(place: Path, arguments: Mapping[str, Any]) -> str:
    data, start = (place / arguments["path"]).read_bytes(), int(arguments.get("offset", 0))
    piece = data[start : start + (int(arguments.get("length", 0)) or len(data))]
    return base64.b64encode(piece).decode() if arguments.get("format") == "binary" else piece.decode(errors="replace")


def _write_file(place: Path, arguments: Mapping[str, Any]) -> str:
    with (place / arguments["path"]).open("a" if arguments["mode"] == "append" else "w") as file:
        file.write(arguments["content"])
    return "written"


def _list_directory(place: Path, arguments: Mapping[str, Any]) -> str:
    entries = sorted((place / arguments["path"]).iterdir())
    return "\n".join(f"[{'DIR' if entry.is_dir() else 'FILE'}] {entry.name}" for entry in entries)


def _create_directory(place: Path, arguments: Mapping[str, Any]) -> str:
    (place / arguments["path"]).mkdir()
    return "created"


def _move_file(place: Path, arguments: Mapping[str, Any]) -> str:
    (place / arguments["source"]).rename(place / arguments["destination"])
    return "moved"


def _delete_file(place: Path, arguments: Mapping[str, Any]) -> str:
    (place / arguments["path"]).unlink()
    return "deleted"


_TOOLS: dict[str, Callable[[Path, Mapping[str, Any]], str]] = {
    "shell": _shell,
    "run_code": _run_code,
    "get_file_info": _get_file_info,
    "read_file": _read_file,
    "write_file": _write_file,
    "list_directory": _list_directory,
    "create_directory": _create_directory,
    "move_file": _move_file,
    "delete_file": _delete_file,
    "system_screenshot": lambda place, arguments: f"https://oss/{place.name}.png",
    "page_use_navigate": lambda place, arguments: arguments["url"],
    "get_metrics": lambda place, arguments: '{"cpu": 1}',
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: AgentBayWorld

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        path, _, query = self.path.partition("?")
        if path.endswith("/callTool"):
            call = json.loads(body)
            self.world.links.append(call["tool"])
            assert self.headers["X-Access-Token"] == call["token"] == "link-token"
            result = self.world.run(self.world.root / path.split("/")[1], call["tool"], call["args"])
            self._respond(200, {"code": 0, "data": json.dumps({"result": result})})
            return
        target = re.sub(r"(Timestamp|SignatureNonce)=[^&]*&?", "", self.path).rstrip("&")
        names = ("x-acs-action", "x-acs-version", "content-type")
        headers = tuple((name, self.headers[name]) for name in names)
        self.world.requests.append(Request(target, headers, re.sub(r"&SdkStats=[^&]*", "", body)))
        values = dict(parse_qsl(query)) | dict(parse_qsl(body))
        self._respond(*self.world.answer(self.headers["x-acs-action"], values))

    def _respond(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log nothing."""


@contextmanager
def agentbay(root: Path) -> Generator[AgentBayWorld]:
    """Serve AgentBay's API from a thread, with a certificate of an authority of its own."""
    world, authority = AgentBayWorld(root), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Its types name a package that is not installed.
    issued: Any = authority.issue_cert("127.0.0.1")
    issued.configure_cert(context)
    world.authority = root / "authority.pem"
    authority.cert_pem.write_to_path(str(world.authority))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"world": world}))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    world.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield world
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

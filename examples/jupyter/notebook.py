"""What JupyterLab does with a kernel, by a real Jupyter Server whose kernels run in sandboxes: `sandmesh up --jupyter`.

`jupyter server --gateway-url=URL/jupyter` serves JupyterLab; this program sends it what JupyterLab sends.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import time
from typing import Any

import requests
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from websocket import WebSocket, create_connection

SECONDS = 60


class Notebook:
    """A notebook that is open on a kernel of a Jupyter Server."""

    def __init__(self, server: str, kernel: str) -> None:
        self.server, self.kernel = server, kernel
        self.session = Session()
        self.socket: WebSocket = create_connection(
            f"{server.replace('http', 'ws')}/api/kernels/{kernel}/channels?session_id={self.session.session}",
            timeout=SECONDS,
        )

    def send(self, kind: str, content: dict[str, Any], channel: str = "shell") -> str:
        """Send a message; return its id."""
        message = self.session.msg(kind, content)
        self.socket.send(json.dumps({**message, "channel": channel, "buffers": []}, default=str))
        return message["header"]["msg_id"]

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        return json.loads(self.socket.recv())

    def request(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        """Send a request; return its reply's content."""
        sent = self.send(kind, content)
        while True:
            message = self.receive()
            if message["channel"] == "shell" and message["parent_header"].get("msg_id") == sent:
                return message["content"]

    def run(self, code: str, line: str | None = None, **more: Any) -> list[tuple[str, dict[str, Any]]]:
        """Run a cell until it is idle; return its messages by type."""
        sent = self.send("execute_request", {"code": code, "allow_stdin": line is not None, **more})
        found, open_ends = [], {"execute_reply", "idle"}
        while open_ends:
            message = self.receive()
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            found.append((kind, content))
            open_ends -= {kind, content.get("execution_state")}
            if kind == "input_request":
                self.send("input_reply", {"value": line}, "stdin")
        return found

    def act(self, verb: str) -> requests.Response:
        """Interrupt or restart the kernel, as the buttons do."""
        return requests.post(f"{self.server}/api/kernels/{self.kernel}/{verb}", json={}, timeout=SECONDS)


def contents(messages: list[tuple[str, dict[str, Any]]], kind: str) -> list[dict[str, Any]]:
    """Return the contents of the messages of a type."""
    return [content for found, content in messages if found == kind]


def printed(messages: list[tuple[str, dict[str, Any]]], name: str = "stdout") -> str:
    """Return what a cell wrote."""
    return "".join(one["text"] for one in contents(messages, "stream") if one["name"] == name)


def check_cells(notebook: Notebook) -> None:
    """Values, output, plots, errors, displays and input are those of a notebook."""
    info = notebook.request("kernel_info_request", {})
    assert (info["language_info"]["name"], info["status"]) == ("python", "ok")
    found = notebook.run("import sys\nx = 41\nprint('out')\nprint('err', file=sys.stderr)\nx + 1")
    assert [one["execution_state"] for one in contents(found, "status")] == ["busy", "idle"]
    assert contents(found, "execute_input")[0]["execution_count"] == 1
    assert (printed(found), printed(found, "stderr")) == ("out\n", "err\n")
    assert contents(found, "execute_result")[0]["data"]["text/plain"] == "42"
    reply = contents(found, "execute_reply")[0]
    assert (reply["status"], reply["execution_count"], reply["user_expressions"]) == ("ok", 1, {})
    plot = notebook.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert contents(plot, "display_data")[0]["data"]["image/png"].startswith("iVBOR")
    table = notebook.run("import pandas\npandas.DataFrame({'a': [1]})")
    assert "<table" in contents(table, "execute_result")[0]["data"]["text/html"]
    failed = notebook.run("1 / 0")
    assert contents(failed, "error")[0]["ename"] == "ZeroDivisionError"
    assert contents(failed, "execute_reply")[0]["status"] == "error"
    live = notebook.run("shown = display('a', display_id='d')\nshown.update('b')")
    assert contents(live, "display_data")[0]["transient"] == {"display_id": "d"}
    assert contents(live, "update_display_data")[0]["data"]["text/plain"] == "'b'"
    assert contents(notebook.run("from IPython.display import clear_output\nclear_output()"), "clear_output")
    large = notebook.run("from IPython.display import HTML\nHTML('<p>' + 'x' * 2_000_000 + '</p>')")
    assert len(contents(large, "execute_result")[0]["data"]["text/html"]) == 2_000_007
    asked = notebook.run("name = input('name? ')\nprint(name)", line="Ada")
    assert contents(asked, "input_request") == [{"prompt": "name? ", "password": False}]
    assert printed(asked) == "Ada\n"
    values = notebook.run("None", user_expressions={"six": "2 * 3"})
    assert contents(values, "execute_reply")[0]["user_expressions"]["six"]["data"]["text/plain"] == "6"
    assert contents(notebook.run("y = 1", silent=True), "execute_input") == []


def check_questions(notebook: Notebook) -> None:
    """Completions, documentation and the like are answered, and leave no trace in the history of cells."""
    before = printed(notebook.run("print(len(In), get_ipython().execution_count)"))
    found = notebook.request("complete_request", {"code": "pandas.DataFr", "cursor_pos": 13})
    assert "DataFrame" in " ".join(found["matches"])
    assert found["cursor_end"] == 13
    shown = notebook.request("inspect_request", {"code": "len", "cursor_pos": 3, "detail_level": 0})
    assert "number of items" in shown["data"]["text/plain"]
    absent = notebook.request("inspect_request", {"code": "nothing_there", "cursor_pos": 3})
    assert (absent["status"], absent["found"]) == ("ok", False)
    assert notebook.request("is_complete_request", {"code": "for x in y:"})["status"] == "incomplete"
    assert notebook.request("history_request", {"hist_access_type": "tail"})["history"] == []
    assert notebook.request("comm_info_request", {})["comms"] == {}
    after = printed(notebook.run("print(len(In), get_ipython().execution_count)"))
    assert [int(word) + 1 for word in before.split()] == [int(word) for word in after.split()]


def check_interrupts(notebook: Notebook) -> None:
    """A cell ends when it is interrupted, what waits behind it is aborted, and variables stay until a restart."""
    for code in ("print('up', flush=True)\nwhile True: pass", "print('up', flush=True)\ninput()"):
        first = notebook.send("execute_request", {"code": code, "allow_stdin": True})
        second = notebook.send("execute_request", {"code": "x = 0"})
        replies: dict[str, Any] = {}
        interrupted = False
        while len(replies) < 2:
            message = notebook.receive()
            kind, content = message["msg_type"], message["content"]
            waits = kind == "input_request" if "input" in code else kind == "stream"
            if waits and not interrupted:
                interrupted = True
                assert notebook.act("interrupt").status_code == 204
            if kind == "execute_reply":
                replies[message["parent_header"]["msg_id"]] = content
        assert (replies[first]["ename"], replies[second]["status"]) == ("KeyboardInterrupt", "aborted")
    assert printed(notebook.run("print(x)")) == "41\n"
    restarted = notebook.act("restart")
    assert restarted.status_code == 200
    again = Notebook(notebook.server, notebook.kernel)
    assert contents(again.run("x"), "error")[0]["ename"] == "NameError"
    assert contents(again.run("2"), "execute_result")[0]["execution_count"] == 2


def check_binary(gateway: str, token: str) -> None:
    """The door also speaks the binary form of messages, to who offers it."""
    headers = {"Authorization": f"token {token}"}
    kernel = requests.post(f"{gateway}/api/kernels", json={}, headers=headers, timeout=SECONDS).json()["id"]
    url, form = f"{gateway.replace('http', 'ws')}/api/kernels/{kernel}/channels", "v1.kernel.websocket.jupyter.org"
    channels = create_connection(url, header=headers, subprotocols=[form], timeout=SECONDS)
    assert channels.getsubprotocol() == form
    message = Session().msg("execute_request", {"code": "6 * 7"})
    pack = lambda part: json.dumps(part, default=json_default).encode()  # noqa: E731
    channels.send_binary(serialize_msg_to_ws_v1(message, "shell", pack))
    value = None
    while value is None:
        channel, (header, parent, _, content, *_) = deserialize_msg_from_ws_v1(channels.recv())
        if json.loads(header)["msg_type"] == "execute_result":
            assert (channel, json.loads(parent)["msg_id"]) == ("iopub", message["header"]["msg_id"])
            value = json.loads(content)["data"]["text/plain"]
    assert value == "42"
    channels.close()
    assert requests.delete(f"{gateway}/api/kernels/{kernel}", headers=headers, timeout=SECONDS).status_code == 204


def start(server: str, name: str) -> Notebook:
    """Open a notebook on a new kernel, as JupyterLab does."""
    path = f"{name}-{time.monotonic_ns()}.ipynb"
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": name}}
    made = requests.post(f"{server}/api/sessions", json=body, timeout=SECONDS)
    assert made.status_code == 201, made.text
    return Notebook(server, made.json()["kernel"]["id"])


def wait_for(server: str) -> None:
    """Wait until a server answers."""
    for _ in range(SECONDS * 10):
        try:
            requests.get(f"{server}/api", timeout=SECONDS)
        except requests.ConnectionError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the Jupyter Server did not start")


def main() -> None:
    """Run all against the server that COMMAND starts; JUPYTER_GATEWAY_AUTH_TOKEN has the token."""
    command = shlex.split(os.environ["COMMAND"])
    gateway = command[-1].partition("=")[2]
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    server = f"http://127.0.0.1:{port}"
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    options += ["--no-browser", "--allow-root", "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True"]
    jupyter = subprocess.Popen([*command, *options])
    try:
        wait_for(server)
        specs = requests.get(f"{server}/api/kernelspecs", timeout=SECONDS).json()
        assert (specs["default"], "bash" in specs["kernelspecs"]) == ("python3", True)
        notebook = start(server, "python3")
        check_cells(notebook)
        check_questions(notebook)
        check_interrupts(notebook)
        other = start(server, "bash")
        assert printed(other.run("echo $((40 + 2)); test -e /workspace/left || echo apart")) == "42\napart\n"
        assert other.request("complete_request", {"code": "ech", "cursor_pos": 3})["matches"] == []
        for one in (notebook, other):
            assert requests.delete(f"{server}/api/kernels/{one.kernel}", timeout=SECONDS).status_code == 204
        assert requests.get(f"{server}/api/kernels", timeout=SECONDS).json() == []
        check_binary(gateway, os.environ["JUPYTER_GATEWAY_AUTH_TOKEN"])
        print("every cell ran")
    finally:
        jupyter.terminate()
        jupyter.wait()


if __name__ == "__main__":
    main()

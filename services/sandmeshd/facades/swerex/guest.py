"""Runs in the sandbox, under its own Python: commands, files and shells, as SWE-ReX's runtime has them.

Reads requests from standard input and writes replies to standard output, each a line of JSON with an id.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_REPLY = 16 << 20
EXCEPTIONS = "swerex.exceptions."


class Failure(Exception):
    """What the client raises: an exception by the path of its class."""

    def __init__(self, class_path: str, message: str, **extra: str) -> None:
        super().__init__(message)
        self.class_path = class_path
        self.extra = extra


class Commands:
    """Runs commands that share nothing but the files."""

    def execute(self, body: dict[str, Any]) -> dict[str, Any]:
        """Run a command to its end, with subprocess's arguments."""
        merged: bool = body["merge_output_streams"]
        process = subprocess.Popen(
            body["command"],
            shell=body["shell"],
            cwd=body["cwd"],
            env=body["env"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=body["timeout"])
        except subprocess.TimeoutExpired:
            # All that it started, too: it is a session leader.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            message = f"the command was killed after {body['timeout']} s: {body['command']!r}"
            raise Failure(EXCEPTIONS + "CommandTimeoutError", message) from None
        output, errors = _text(stdout), _text(stderr or b"")
        if body["check"] and process.returncode:
            lead = f"{body['error_msg']}: " if body["error_msg"] else ""
            ended = f"{body['command']!r} ended with exit code {process.returncode}"
            raise Failure(EXCEPTIONS + "NonZeroExitCodeError", f"{lead}{ended}\n{output}{errors}")
        return {"stdout": output, "stderr": errors, "exit_code": process.returncode}


class GuestFiles:
    """Reads and writes files, with the rights of the sandbox's user."""

    def __init__(self) -> None:
        self._uploads: dict[str, str] = {}

    def read_file(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a file's text."""
        path = Path(body["path"])
        if path.stat().st_size > MOST_REPLY:
            raise Failure("builtins.OSError", f"{path} has more than {MOST_REPLY} bytes: fetch it in parts")
        # As the client's own server, whose default is the encoding of the locale: UTF-8 here.
        return {"content": path.read_text(body["encoding"] or "utf-8", body["errors"])}

    def write_file(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write a text, in a directory that is created."""
        path = Path(body["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body["content"], "utf-8")
        return {}

    def upload_part(self, body: dict[str, Any]) -> dict[str, Any]:
        """Append to an upload."""
        name = self._uploads.get(body["upload"])
        if name is None:
            descriptor, name = tempfile.mkstemp(prefix="swerex-")
            os.close(descriptor)
            self._uploads[body["upload"]] = name
        with Path(name).open("ab") as file:
            file.write(base64.b64decode(body["data"]))
        return {}

    def upload_end(self, body: dict[str, Any]) -> dict[str, Any]:
        """Put an upload where it is to be: as a file, or as the contents of an archive."""
        target, name = Path(body["target_path"]), self._uploads.pop(body["upload"])
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if body["unzip"]:
                with zipfile.ZipFile(name) as archive:
                    archive.extractall(target)
            else:
                Path(name).chmod(0o644)
                shutil.move(name, target)
        finally:
            Path(name).unlink(missing_ok=True)
        return {}

    def upload_drop(self, body: dict[str, Any]) -> dict[str, Any]:
        """Forget an upload that was broken off."""
        name = self._uploads.pop(body["upload"], None)
        if name is not None:
            Path(name).unlink(missing_ok=True)
        return {}


class Shells:
    """The shells of the client, by name."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._shells: dict[str, Any] = {}
        self._lock = threading.Lock()

    def create_session(self, body: dict[str, Any]) -> dict[str, Any]:
        """Start a shell."""
        name = body["session"]
        with self._lock:
            if name in self._shells:
                raise Failure(EXCEPTIONS + "SessionExistsError", f"session {name!r} exists already")
            shell = self._shells[name] = self._make()
        try:
            return {"output": shell.start(body["startup_source"], body["startup_timeout"]), "session_type": "bash"}
        except BaseException:
            self._shells.pop(name, None)
            shell.close()
            raise

    def run_in_session(self, body: dict[str, Any]) -> dict[str, Any]:
        """Run a command in a shell, or interrupt the one that runs."""
        shell = self._find(body["session"])
        found: dict[str, Any] = shell.interrupt(body) if body["action_type"] == "bash_interrupt" else shell.run(body)
        return {"failure_reason": "", "session_type": "bash", **found}

    def close_session(self, body: dict[str, Any]) -> dict[str, Any]:
        """End a shell."""
        shell = self._find(body["session"])
        del self._shells[body["session"]]
        shell.close()
        return {"session_type": "bash"}

    def _find(self, name: str) -> Any:
        if name not in self._shells:
            raise Failure(EXCEPTIONS + "SessionDoesNotExistError", f"session {name!r} does not exist")
        return self._shells[name]


def serve(methods: dict[str, Callable[[dict[str, Any]], dict[str, Any]]], idle_seconds: float) -> None:
    """Answer requests, many at a time, until the input ends or none has come for so long."""
    writing, running = threading.Lock(), [0]

    def answer(message: dict[str, Any]) -> None:
        try:
            reply = {"result": methods[message["method"]](message["body"])}
        except BaseException as error:
            reply = {"error": _described(error)}
        line = json.dumps({"id": message["id"], **reply}).encode()
        if len(line) > MOST_REPLY * 2:
            failure = Failure("builtins.OSError", f"the reply has {len(line)} bytes, more than {MOST_REPLY * 2}")
            line = json.dumps({"id": message["id"], "error": _described(failure)}).encode()
        with writing:
            running[0] -= 1
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], idle_seconds)
        if not ready and not running[0]:
            return
        data = os.read(0, 1 << 20) if ready else b""
        if ready and not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            with writing:
                running[0] += 1
            threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()


def _described(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Failure):
        return {"class_path": error.class_path, "message": str(error), "extra_info": error.extra}
    kind = type(error)
    return {"class_path": f"{kind.__module__}.{kind.__name__}", "message": str(error), "extra_info": {}}


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")

"""Runs in the sandbox, under its own Python: compiles and runs a program, as one request of a client says."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

MOST_OUTPUT = 4 << 20
MOST_FETCHED = 16 << 20


def main() -> None:
    """Read a request from standard input and write the reply to standard output."""
    request = json.load(sys.stdin)
    if "probe" in request:
        json.dump({name: shutil.which(name) is not None for name in request["probe"]}, sys.stdout)
        return
    missing = [name for name in request["needs"] if shutil.which(name) is None]
    json.dump({"missing": missing} if missing else _perform(request), sys.stdout)


def _perform(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="code-"))
    os.chdir(folder)
    for name, content in request["files"].items():
        path = Path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        except OSError as error:
            return {"refused": f"files: {name[:200]!r} cannot be written: {error.strerror}"}
    reply: dict[str, Any] = {"compile_result": None, "run_result": None, "files": {}}
    if request["compile"]:
        done = reply["compile_result"] = _run(request["compile"], b"", request["compile_timeout"])
        if done["return_code"] != 0:
            return reply
    data, run = (request["stdin"] or "").encode(errors="surrogatepass"), request["run"]
    if request["memory"]:
        # Memory that it may write to: runtimes reserve far more addresses than that.
        run = ["sh", "-c", 'ulimit -d "$0" && exec "$@"', str(request["memory"] // 1024), *run]
    reply["run_result"] = _run(run, data, request["run_timeout"])
    reply["files"] = _fetch(request["fetch_files"])
    return reply


def _run(command: list[str], data: bytes, timeout: float) -> dict[str, Any]:
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        stdin.write(data)
        stdin.seek(0)
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=errors, start_new_session=True)
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - began
        # What it left behind ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return {
            "status": "TimeLimitExceeded" if code is None else "Finished",
            "execution_time": seconds,
            "return_code": code,
            "stdout": _text(out),
            "stderr": _text(errors),
        }


def _text(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    text = file.read(MOST_OUTPUT).decode(errors="backslashreplace")
    return text if size <= MOST_OUTPUT else f"{text}\n[{size - MOST_OUTPUT} more bytes are left out]"


def _fetch(names: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    left = MOST_FETCHED
    for name in names:
        path = Path(name)
        # What cannot be read is left out, as what is not there.
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_size <= left:
                data = path.read_bytes()
                left -= len(data)
                found[name] = base64.b64encode(data).decode()
    return found


main()

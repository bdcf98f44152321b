"""A real HTTP server that speaks S3: moto's, in a process of its own, with what it holds in its memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from urllib.request import Request, urlopen

BUCKET, KEY = "workspaces", "testing"


@contextmanager
def s3_server() -> Generator[str]:
    """Run one with a bucket and give its address."""
    command = [sys.executable, "-u", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    env = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            address = _ready(process)
            # It notes each request: nobody reads them, and a full pipe would stop it.
            drain = threading.Thread(target=_drain, args=(process,), daemon=True)
            drain.start()
            yield address
        finally:
            process.terminate()


def _drain(process: subprocess.Popen[str]) -> None:
    for _ in process.stderr or ():
        pass


def _ready(process: subprocess.Popen[str]) -> str:
    for line in process.stderr or ():
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", line)
        if found:
            with urlopen(Request(f"{found[1]}/{BUCKET}", method="PUT")):  # noqa: S310 - our own server
                return found[1]
    raise AssertionError("the S3 server ended before it listened")

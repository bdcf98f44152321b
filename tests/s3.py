"""A real HTTP server that speaks S3: moto's, in a process of its own, with what it holds in its memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
            yield _ready(process)
        finally:
            process.terminate()


def _ready(process: subprocess.Popen[str]) -> str:
    for line in process.stderr or ():
        found = re.search(r"Running on (http://127\.0\.0\.1:\d+)", line)
        if found:
            with urlopen(Request(f"{found[1]}/{BUCKET}", method="PUT")):  # noqa: S310 - our own server
                return found[1]
    raise AssertionError("the S3 server ended before it listened")

"""PID 1 of one step: `python -I -S SITE --build-step FD`, where FD has what `run` takes, as JSON.

It makes directories, and copies files or runs a command. Then it writes what changed to the pipe `layer`, and a line of
JSON to the pipe `ready`: `{"done": {...}}` with what `_carry_out` returns, or `{"error": TEXT}`. It ends when the pipe
`life` does, and everything with it.
"""

from __future__ import annotations

import json
import os
import tarfile
import threading
import traceback
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from sandmeshd.agent.boot.build_step.command import Command
from sandmeshd.agent.boot.build_step.copies import CopyRefused, copy_of
from sandmeshd.agent.boot.build_step.layer import layer_pieces
from sandmeshd.agent.boot.build_step.places import Places
from sandmeshd.agent.boot.build_step.relay import start_relay
from sandmeshd.agent.boot.build_step.sources import Everything, SourceMissing, found_sources, source_pieces

_OWN: Final = ("proc", "dev", "sys", "opt/sandmesh", "run/agent", "etc/hosts", "etc/hostname", "etc/resolv.conf")
"""What is the step's and not the image's; as in Docker, changes of those files of /etc stay with the step."""


def run(descriptor: str) -> NoReturn:
    """Carry out the step that a descriptor has, and end."""
    with os.fdopen(int(descriptor), encoding="utf-8", errors="surrogateescape") as file:
        step: dict[str, Any] = json.load(file)
    answer: dict[str, object] = {"error": "the step failed"}
    try:
        answer = {"done": _carry_out(step)}
    except (CopyRefused, SourceMissing, ValueError, tarfile.TarError) as error:
        answer = {"refused": str(error)}
    except OSError as error:
        answer = {"error": str(error), "errno": error.errno}
    except Exception:
        traceback.print_exc()
    finally:
        os.write(step["ready"], json.dumps(answer).encode() + b"\n")
        os._exit(0)


def _carry_out(step: Mapping[str, Any]) -> dict[str, object]:
    """Return the exit code of the step's command, 0 where it has none."""
    _make_directories(step["directories"])
    places = Places(step["hidden"])
    command = step["command"]
    code = 0
    if step["copy"] is not None:
        _copy(step, step["copy"])
    if command is not None:
        if step["input"] >= 0:
            _receive(step)
        places.mount_all(command["mounts"])
        # It is forked before the first thread.
        process = Command(step, command).start()
        _live(step["life"])
        if step["port"]:
            start_relay(step["port"], f"{step['hidden']}/proxy")
        code = _wait(process)
        places.clear()
    if code == 0:
        _write_layer(step)
    return {"code": code}


def _make_directories(paths: list[str]) -> None:
    for path in paths:
        os.makedirs(path, 0o755, exist_ok=True)


def _copy(step: Mapping[str, Any], copy: Mapping[str, Any]) -> None:
    own = copy_of(copy)
    if copy["image"] is None:
        with os.fdopen(step["input"], "rb") as stream:
            own.apply(stream)
        return
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _send(f"{step['hidden']}/images/{copy['image']}", copy["patterns"], writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        first = stream.peek(1)
        if first[:1] == b"!":
            raise SourceMissing(stream.read()[1:].decode())
        own.apply(stream)
        stream.read()
    os.waitpid(child, 0)


def _send(root: str, patterns: list[str], writer: int) -> NoReturn:
    """Write files of another image's root, which is entered, so that its links lead nowhere else."""
    try:
        os.chroot(root)
        os.chdir("/")
        with os.fdopen(writer, "wb") as out:
            try:
                paths = found_sources("/", patterns, Everything())
                out.writelines(source_pieces("/", paths, Everything()))
            except SourceMissing as error:
                out.write(f"!{error}".encode())
    finally:
        os._exit(0)


def _receive(step: Mapping[str, Any]) -> None:
    """Put files of the build's directory where mounts of a command find them."""
    place = f"{step['hidden']}/files"
    os.mkdir(place, 0o755)
    with os.fdopen(step["input"], "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        # A tar of this build's own; Python before 3.11.4 knows no filter.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        for member in tar:
            member.uid = member.gid = 0
            tar.extract(member, place, numeric_owner=True)


def _live(descriptor: int) -> None:
    threading.Thread(target=_end_with, args=(descriptor,), daemon=True).start()


def _end_with(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os._exit(1)


def _wait(process: int) -> int:
    """Return a child's exit code; others' processes come here, too, when their parents end."""
    while True:
        pid, status = os.wait()
        if pid == process:
            return os.waitstatus_to_exitcode(status)


def _write_layer(step: Mapping[str, Any]) -> None:
    with os.fdopen(step["layer"], "wb", buffering=0) as out:
        for piece in layer_pieces(step["changes"], _OWN):
            view = memoryview(piece)
            while view:
                view = view[out.write(view) or 0 :]

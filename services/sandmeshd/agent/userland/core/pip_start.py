"""Code that pip runs first in a sandbox: where it unpacks, and what a user is told when a disk is full.

It is copied into the layer of packages, whose Python has nothing of this project: it imports the standard library only.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import shutil
import sys

_FULL = "[Errno 28]"


def watch(layer: str, packages: str) -> None:
    """Make pip unpack beside the packages, and remove and explain what it cannot finish where the disk is full."""
    _install_here(layer)
    temporary = f"{layer}/unpacked"
    try:
        os.makedirs(temporary, exist_ok=True)  # noqa: PTH103 - pathlib is a slow import, here and below
        before = set(os.listdir(packages))  # noqa: PTH208
    except OSError:
        before = None
    else:
        os.environ.setdefault("TMPDIR", temporary)
    failures: list[str] = []
    make = logging.getLogRecordFactory()

    def noting(*args: object, **keywords: object) -> logging.LogRecord:
        record = make(*args, **keywords)
        if _FULL in str(record.msg) or any(_FULL in str(argument) for argument in record.args or ()):
            failures.append(record.getMessage())
        return record

    logging.setLogRecordFactory(noting)

    def explain() -> None:
        if failures:
            _explain(layer, packages, before)
            sys.stdout.flush()
            sys.stderr.flush()
            # A status that a kernel's %pip knows: pip's own is 1 for whatever failed.
            os._exit(errno.ENOSPC)

    atexit.register(explain)


def _install_here(layer: str) -> None:
    """Install what is to be this user's like everything else: pip refuses `--user` in a virtual environment."""
    if "install" not in sys.argv:
        return
    os.environ["PIP_USER"] = "0"
    if "--user" in sys.argv:
        sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != "--user"]
        sys.stderr.write(f"sandmesh: --user is left out: {layer}, where pip installs, is this user's\n")


def _explain(layer: str, packages: str, before: set[str] | None) -> None:
    removed = [] if before is None else _remove_incomplete(packages, before)
    half = f" What was only half installed was removed: {', '.join(removed)}." if removed else ""
    sys.stderr.write(
        f"sandmesh: pip could not install everything: {layer} is on a disk of {_size(layer)}, which was full.{half} "
        'Remove files, or create the sandbox with more of both, as limits={"disk": "8GiB", "memory": "16GiB"}.\n'
    )


def _size(place: str) -> str:
    try:
        found = os.statvfs(place)
    except OSError:
        return "an unknown size"
    return f"{found.f_blocks * found.f_frsize >> 20} MiB"


def _remove_incomplete(packages: str, before: set[str]) -> list[str]:
    """Remove new entries that no complete installation lists: pip writes a RECORD last."""
    fresh = set(os.listdir(packages)) - before  # noqa: PTH208
    owned: set[str] = {"__pycache__"}
    for name in fresh:
        try:
            with open(f"{packages}/{name}/RECORD", encoding="utf-8") as file:  # noqa: PTH123
                owned |= {line.split(",")[0].strip('"').split("/")[0] for line in file}
        except OSError:
            continue
    gone = sorted(fresh - owned)
    for name in gone:
        path = f"{packages}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)  # noqa: PTH108
    return gone

"""Files, mounts and devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .attempts import is_there, opens, probe, status


def mounts() -> list[tuple[str, str, set[str]]]:
    """Return place, kind and options of the mounts, what is over another last."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [(row[1], row[2], set(row[3].split(","))) for row in rows]


@probe
def writable_mounts(facts: dict[str, Any]) -> list[str]:
    """A mount that may be written beside the few that are meant to be."""
    last = {place: options for place, kind, options in mounts() if kind != "devtmpfs"}
    return [place for place, options in last.items() if "rw" in options and place not in facts["writable"]]


@probe
def setuid_mounts(_: dict[str, Any]) -> list[str]:
    """A mount where set-uid programs count."""
    return [place for place, _kind, options in mounts() if "nosuid" not in options]


@probe
def device_mounts(_: dict[str, Any]) -> list[str]:
    """A mount where device files count, beside those of /dev."""
    return [place for place, _kind, options in mounts() if "nodev" not in options and not place.startswith("/dev")]


@probe
def setuid_program(_: dict[str, Any]) -> list[str]:
    """A set-uid program that runs as its owner."""
    return [] if status()["NoNewPrivs"] == "1" else ["set-uid programs run as their owners"]


@probe
def system_directories(facts: dict[str, Any]) -> list[str]:
    """A new file in a directory of the system."""
    done: list[str] = []
    for place in _directories("/", 3):
        if place.startswith("/proc") or any(f"{place}/".startswith(f"{free}/") for free in facts["writable"]):
            continue
        name = Path(place, ".probe")
        with suppress(OSError):
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            name.unlink()
            done.append(place)
    return done


def _directories(top: str, depth: int) -> Iterator[str]:
    yield top
    if depth:
        with suppress(OSError):
            inner = [entry.path for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
            for place in inner:
                yield from _directories(place, depth - 1)


@probe
def host_files(facts: dict[str, Any]) -> list[str]:
    """Files of the host, the mesh and neighbours, by their paths and through /proc's own ways to a root."""
    roots = ("", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc/self/cwd/../..", "/..")
    return [root + path for root in roots for path in facts["hidden"] if is_there(root + path)]


@probe
def devices(facts: dict[str, Any]) -> list[str]:
    """A device beside the harmless ones."""
    found: list[str] = []
    for place, _, names in os.walk("/dev"):
        for name in names:
            path = f"{place}/{name}"
            mode = Path(path).lstat().st_mode
            if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and path not in facts["devices"]:
                found.append(path)
    return [path for path in found if not path.startswith("/dev/pts/")]


@probe
def new_device(_: dict[str, Any]) -> list[str]:
    """A device file of one's own: the host's memory."""
    path = Path(f"/tmp/.probe-{os.getpid()}")
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 1))
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return []
    finally:
        with suppress(OSError):
            path.unlink()
    return [str(path)]


@probe
def own_program(_: dict[str, Any]) -> list[str]:
    """Writing to the program that runs, by which other sandboxes' or the host's would be changed."""
    return [path for path in (str(Path("/proc/self/exe").resolve()), "/proc/1/exe") if opens(path, os.O_WRONLY)]


@probe
def hard_links(facts: dict[str, Any]) -> list[str]:
    """A link in the workspace to a file that is not in it."""
    done: list[str] = []
    link = Path(facts["workspace"], ".probe")
    for path in ("/usr/bin/env", "/etc/passwd", "/proc/1/environ", "/dev/null", *facts["linkable"]):
        with suppress(OSError):
            link.hardlink_to(path)
            link.unlink()
            done.append(path)
    return done

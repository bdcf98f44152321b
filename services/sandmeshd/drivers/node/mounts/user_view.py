"""What sandboxes see of a template that names its user: accounts of that name, and `sudo` for programs that call it."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from sandmeshd.drivers.node.agent_config import USER_ID, USER_PROGRAMS
from sandmeshd.drivers.node.mounts.training_data import data_mounts
from sandmeshd.drivers.node.readability import open_to_all
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from sandmeshd.templates import Template

_SUDO: Final = """#!/bin/sh
# There is one user here, so that what is asked for as another is done as this one.
login=
while [ $# -gt 0 ]; do
    case $1 in
        --) shift; break ;;
        -v | -k | -K | --validate | --reset-timestamp | --remove-timestamp) [ $# -gt 1 ] || exit 0 ;;
        -V | --version) echo "sudo of a sandbox with one user"; exit 0 ;;
        -l | --list) echo "everything is run as $(id -un)"; exit 0 ;;
        -i | -s | --login | --shell) login=1 ;;
        -u | -g | -p | -C | -h | -r | -t | -U | -D | -R | -T) shift ;;
        -*) ;;
        [A-Za-z_]*=*) export "$1" ;;
        *) break ;;
    esac
    shift
done
if [ -n "$login" ]; then
    [ $# -gt 0 ] && exec "${SHELL:-/bin/sh}" -c "$*"
    exec "${SHELL:-/bin/sh}"
fi
if [ $# -eq 0 ]; then
    echo "usage: sudo [-u user] command [argument ...]" >&2
    exit 1
fi
exec "$@"
"""
_IN_ENVIRONMENT: Final = """#!/bin/sh
# Login shells of an image know nothing of the environment that other programs have first in PATH.
for place in "$VIRTUAL_ENV" /opt/env; do
    [ -x "$place/bin/{0}" ] && exec "$place/bin/{0}" "$@"
done
echo "there is no {0}" >&2
exit 127
"""
_GATEWAY: Final = """#!/bin/sh
# The servers were started with the sandbox, by names that its maker gave; this keeps the token that opens them.
if [ -z "$MCP_SERVERS" ]; then
    echo "this sandbox has no MCP servers: name them when it is made" >&2
    exit 1
fi
if [ -z "$GATEWAY_ACCESS_TOKEN" ]; then
    echo "GATEWAY_ACCESS_TOKEN is not set" >&2
    exit 1
fi
umask 077
mkdir -p "$HOME/.mcp-gateway" && printf %s "$GATEWAY_ACCESS_TOKEN" >"$HOME/.mcp-gateway/token"
"""


USER_PLACES: Final = ("/etc/passwd", "/etc/group", USER_PROGRAMS)
"""Where a template's own user is; sandboxes of an image have its users and programs there."""


def template_mounts(template: Template, paths: MeshPaths) -> list[tuple[Path, str]]:
    """Return what a template's sandboxes see read-only besides the system, with the places inside.

    Raises:
        CapabilityMissing: The node lacks the administrator's data for it.
    """
    return [*data_mounts(template, paths), *_user_mounts(template, paths)]


def image_mounts(template: Template, paths: MeshPaths) -> list[tuple[Path, str]]:
    """Return them for sandboxes of an image, whose login shells look for programs where its system says."""
    found = template_mounts(template, paths)
    own = next((real for real, place in found if place == USER_PROGRAMS), None)
    folders = () if own is None else (own, own.with_name("image"))
    return [*found, *((path, f"/usr/local/bin/{path.name}") for folder in folders for path in sorted(folder.iterdir()))]


def _user_mounts(template: Template, paths: MeshPaths) -> list[tuple[Path, str]]:
    if not template.user:
        return []
    files = _files(template.user)
    name = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    folder = paths.cache / "users" / name
    if not folder.exists():
        _write(folder, files)
    return list(zip((folder / "passwd", folder / "group", folder / "bin"), USER_PLACES, strict=True))


def _files(user: str) -> dict[str, str]:
    accounts = (
        "root:x:0:0:root:/root:/bin/sh",
        f"{user}:x:{USER_ID}:{USER_ID}:{user}:/home/{user}:/bin/bash",
        "agent:x:900:900::/nonexistent:/usr/sbin/nologin",
        "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin",
    )
    groups = ("root:x:0:", f"sudo:x:27:{user}", f"{user}:x:{USER_ID}:", "agent:x:900:", "nogroup:x:65534:")
    texts = {"passwd": "\n".join(accounts), "group": "\n".join(groups)}
    return {name: f"{text}\n" for name, text in texts.items()} | {
        "bin/sudo": _SUDO,
        "bin/mcp-gateway": _GATEWAY,
        "image/python": _IN_ENVIRONMENT.format("python"),
        "image/pip": _IN_ENVIRONMENT.format("pip"),
    }


def _write(folder: Path, files: dict[str, str]) -> None:
    """Write a folder as a whole; where another process was first, its own is used."""
    fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    for name, text in files.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644 if path.parent == fresh else 0o755)
    open_to_all(fresh)
    try:
        fresh.rename(folder)
    except OSError:
        remove_tree(fresh)

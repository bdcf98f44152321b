"""Owners of what is made in sandboxes with root inside: the mesh makes it as root."""

from __future__ import annotations

from typing import Final

from sandmeshd.facades.e2b.envd.paths import WORKSPACE
from sandmeshd.facades.e2b.guests import Guest

_SCRIPT: Final = """path=$2
while chown -h "$1" "$path"; do
  path=${path%/*}
  case $path in "$3"/*) [ "$(stat -c %u "$path")" = 0 ] || break;; *) break;; esac
done"""
"""Gives a path to a user, and directories of the workspace above it that were made for it."""


async def give(guest: Guest, path: str, named: str = "") -> None:
    """Change the owner of what was made at a path to the user that a request names, or to the default one."""
    user = guest.user(named)
    if guest.rooted and user != "root":
        command = ["/bin/sh", "-c", _SCRIPT, "sh", user, path, WORKSPACE]
        async with await guest.box.processes.start(command) as process:
            await process.close_stdin()
            await process.wait()

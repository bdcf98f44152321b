"""The names of allocators in the store, which say where each runs, and those that have fallen silent."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb

FORGET_SECONDS: Final = 600.0
"""How long an allocator that fell silent is reported: it may have been removed without a word."""

_NAME: Final = re.compile(r"(\d{1,10})@([^@]{1,255})@[0-9a-f]{16}")


def new_name() -> str:
    """Return a name that no other allocator has: process id, host and a random part."""
    return f"{os.getpid()}@{socket.gethostname()}@{secrets.token_hex(8)}"


def silent_troubles(pairs: Sequence[bytes]) -> list[pb.Trouble]:
    """Return a problem for each allocator that is silent; `pairs` has names and seconds in turn.

    One of this host whose process is gone is none: it was killed, and another may have taken its place.
    """
    found: list[pb.Trouble] = []
    for name, seconds in zip(pairs[::2], pairs[1::2], strict=True):
        match = _NAME.fullmatch(name.decode(errors="replace"))
        if match is None or (match[2] == socket.gethostname() and not Path("/proc", match[1]).exists()):
            continue
        detail = f"process {match[1]} on {match[2]} has not been heard of for {int(seconds)} s"
        fix = (
            f"see whether it hangs: end it (kill -9 {match[1]} on {match[2]}) and start it again; others do its "
            f"work, and one that was removed is forgotten after {FORGET_SECONDS / 60:.0f} minutes"
        )
        found.append(pb.Trouble(part="allocator", detail=detail, fix=fix))
    return found

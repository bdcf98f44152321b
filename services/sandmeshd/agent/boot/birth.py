"""Prepares the volumes of a container whose runtime can neither own nor share them, as a pod's: all are root's.

The agent's files are in a read-only directory that root alone can read. CHOWN is needed for it, which PID 1 gives up
with the rest when it becomes the agent.
"""

from __future__ import annotations

import os

from sandmeshd.agent.userland.users import AGENT_ID

NAMES = ("config", "user", "tls")
OWNED, SHARED = ("/home/sandbox", "/workspace"), ("/tmp", "/dev/shm")  # noqa: S108 - inside


def unpack(born: str, directory: str, user: int) -> None:
    """Copy the agent's files into its directory, which is made, and hand the other volumes to user code.

    Raises:
        OSError: A file or volume is not there, or CHOWN is not.
    """
    # User code may pass through the directory above, and write nothing there.
    os.chmod(os.path.dirname(directory), 0o711)  # noqa: PTH101, PTH120, S103 - pathlib is a slow import
    os.mkdir(directory, 0o700)  # noqa: PTH102 - as above
    for name in NAMES:
        _copy(f"{born}/{name}", f"{directory}/{name}")
    os.chown(directory, AGENT_ID, AGENT_ID)
    for place in OWNED:
        os.chmod(place, 0o700)  # noqa: PTH101 - as above
        os.chown(place, user, user)
    for place in SHARED:
        os.chmod(place, 0o1777)  # noqa: PTH101, S103 - as above


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as file:  # noqa: PTH123 - as above
        data = file.read()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fchown(descriptor, AGENT_ID, AGENT_ID)
    finally:
        os.close(descriptor)

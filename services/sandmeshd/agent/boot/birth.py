"""Prepares the volumes of a container whose runtime can neither own nor share them, as a pod's: all are root's.

The agent's files are in a read-only directory that only root can read, or its first line is an argument. CHOWN is
needed for it, which PID 1 gives up with the rest when it becomes the agent.
"""

from __future__ import annotations

import os

from sandmeshd.agent.userland.core.users import AGENT_ID

NAMES = ("config", "user", "tls")
_WORKSPACE = "/workspace"
OWNED, SHARED = ("/home/sandbox", _WORKSPACE), ("/tmp", "/dev/shm")  # noqa: S108 - inside


def unpack(born: str, directory: str, user: int) -> None:
    """Copy the agent's files into its directory, which is made, and hand the other volumes to user code.

    Raises:
        OSError: A file or volume is not there, or CHOWN is not.
    """
    _make(directory)
    for name in NAMES:
        _copy(f"{born}/{name}", f"{directory}/{name}")
    _hand_over(directory, user)


def prepare(line: str, directory: str, user: int) -> None:
    """Write the configuration of an agent that waits for the rest, where its runtime shares nothing with it.

    A container that does not start as uid 0 has one uid for all, and its volumes are for anybody.

    Raises:
        OSError: The container's file system is read-only, or CHOWN is not there.
    """
    os.makedirs(os.path.dirname(directory), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is a slow import
    line_file = f"{directory}/{NAMES[0]}"
    if os.geteuid():
        os.makedirs(directory, 0o700, exist_ok=True)  # noqa: PTH103 - as above
        _write(f"{line}\n".encode(), line_file, os.geteuid())
        return
    _make(directory)
    _write(f"{line}\n".encode(), line_file)
    _hand_over(directory, user)


def prepare_in_image(line: str, directory: str) -> None:
    """Prepare as `prepare` does, in an image without an agent: all is root's until the user of user code is known.

    Raises:
        OSError: As `prepare`.
    """
    os.makedirs(os.path.dirname(directory), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is a slow import
    _make(directory)
    _write(f"{line}\n".encode(), f"{directory}/{NAMES[0]}", 0)
    os.chown(_WORKSPACE, 0, 0)
    os.chmod(_WORKSPACE, 0o700)  # noqa: PTH101 - as above
    for place in SHARED:
        os.chmod(place, 0o1777)  # noqa: PTH101, S103 - as above


def hand_to_agent(directory: str) -> None:
    """Make what `prepare_in_image` wrote the agent's, where that has its own uid."""
    for path in (f"{directory}/{NAMES[0]}", directory):
        os.chown(path, AGENT_ID, AGENT_ID)


def _make(directory: str) -> None:
    parent = os.path.dirname(directory)  # noqa: PTH120 - pathlib is a slow import
    # The image has both, the agent's own, for runtimes that mount something there: without more rights than CHOWN
    # root can change neither then.
    os.chown(parent, 0, 0)
    # User code may pass through the directory above, and write nothing there.
    os.chmod(parent, 0o711)  # noqa: PTH101, S103 - as above
    try:
        os.mkdir(directory, 0o700)  # noqa: PTH102 - as above
    except FileExistsError:
        os.chown(directory, 0, 0)
        os.chmod(directory, 0o700)  # noqa: PTH101 - as above


def _hand_over(directory: str, user: int) -> None:
    os.chown(directory, AGENT_ID, AGENT_ID)
    for place in OWNED:
        os.chown(place, 0, 0)
        os.chmod(place, 0o700)  # noqa: PTH101 - as above
        os.chown(place, user, user)
    for place in SHARED:
        os.chmod(place, 0o1777)  # noqa: PTH101, S103 - as above


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as file:  # noqa: PTH123 - pathlib is a slow import
        _write(file.read(), target)


def _write(data: bytes, target: str, owner: int = AGENT_ID) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fchown(descriptor, owner, owner)
    finally:
        os.close(descriptor)

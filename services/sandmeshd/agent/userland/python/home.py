"""The folder in the home of user code where IPython keeps its files."""

from __future__ import annotations

import os
from typing import Any


def own_folder() -> str | None:
    """Return IPython's folder, None where it is not writable.

    IPython would ask the system that, which answers for a uid that in a container makes no files here, and take a
    temporary one instead.
    """
    folder = os.environ.get("IPYTHONDIR") or f"{os.environ.get('HOME', '')}/.ipython"
    try:
        os.makedirs(f"{folder}/profile_default", exist_ok=True)  # noqa: PTH103 - pathlib is a slow import
    except OSError:
        return None
    return folder


def move(shell: Any) -> None:
    """Keep IPython's files in the home that the environment names by now, if that can be written."""
    folder = own_folder()
    if folder is not None:
        shell.ipython_dir = folder
        profile = shell.profile_dir
        # Its location can be set once.
        profile._location_isset = False  # noqa: SLF001 - there is no public way
        profile.location = f"{folder}/profile_default"

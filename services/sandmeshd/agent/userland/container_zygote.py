"""The zygote of a container: it makes files as user code does, and its children become user code by their uid."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress

from sandmeshd.agent.userland import syscalls, users, zygote


def run(fds: list[int], site: str) -> None:
    """Run the zygote of user code with the uid that comes first; the rest are descriptors."""
    user, *rest = fds
    if os.geteuid() == 0:
        users.become_agent()
    syscalls.touch_files_as(user)
    _fill_home(os.environ.get("HOME", ""))
    zygote.run(rest, site, warm=False)


def _fill_home(home: str) -> None:
    """Copy the caches that the image's build left for the home: they take seconds to fill."""
    with suppress(OSError, shutil.Error):
        shutil.copytree(f"{sys.prefix}/home", home, dirs_exist_ok=True, copy_function=shutil.copyfile)
        os.chmod(home, 0o700)  # noqa: PTH101 - pathlib is a slow import

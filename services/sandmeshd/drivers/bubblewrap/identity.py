"""The uid that sandboxes' processes have on the host, never 0.

subprocess's `user` is not used for it: it makes Python fork where it otherwise uses vfork, and a fork beside gRPC's
threads runs gRPC's fork handlers, after which the child crashes.
"""

from __future__ import annotations

import os
import shutil
import sys

from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings

SET_UID = (
    "import os, sys; uid = int(sys.argv[1]); os.setgroups([]); os.setgid(uid); os.setuid(uid); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""Replaces setpriv if the machine has none; it takes 12 ms more."""


def sandbox_identity(settings: BubblewrapSettings) -> list[str]:
    """Return the start of a command line that runs the rest as the sandboxes' uid; empty unless this user is root."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin:/usr/sbin:/sbin")
    if setpriv is None:
        return [sys.executable, "-I", "-S", "-c", SET_UID, str(settings.host_uid)]
    return [setpriv, f"--reuid={settings.host_uid}", f"--regid={settings.host_gid}", "--clear-groups", "--"]

"""Runs programs as what sandboxes' processes are on the host, never uid 0.

Not by subprocess's own `user`: it makes Python fork where it otherwise uses vfork, and a fork beside gRPC's threads
runs gRPC's fork handlers, after which the child crashes.
"""

from __future__ import annotations

import os
import shutil
import sys

from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings

BECOME = (
    "import os, sys; uid = int(sys.argv[1]); os.setgroups([]); os.setgid(uid); os.setuid(uid); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""What setpriv does, where the machine has none; it takes 12 ms more."""


def sandbox_identity(settings: BubblewrapSettings) -> list[str]:
    """Give the start of a command line that runs the rest as the sandboxes' uid; nothing for an ordinary user."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin:/usr/sbin:/sbin")
    if setpriv is None:
        return [sys.executable, "-I", "-S", "-c", BECOME, str(settings.host_uid)]
    return [setpriv, f"--reuid={settings.host_uid}", f"--regid={settings.host_gid}", "--clear-groups", "--"]

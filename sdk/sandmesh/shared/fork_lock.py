"""What a fork must not interrupt: imports at the first use, in whichever thread that is.

A child inherits the lock of a module that another thread is importing, and hangs when it imports the same.
"""

from __future__ import annotations

import os
import threading

fork_lock = threading.RLock()
"""Held during an import at the first use; a fork waits for it."""
os.register_at_fork(before=fork_lock.acquire, after_in_parent=fork_lock.release, after_in_child=fork_lock.release)

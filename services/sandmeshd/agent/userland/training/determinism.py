"""What makes an episode repeatable: the random numbers' seed, and the start of the clock."""

from __future__ import annotations

import os
import random
import time
from importlib import import_module
from importlib.util import find_spec


def fix_seed(seed: int) -> None:
    """Seed the generators that modules share: those of `random` and, where it is installed, of numpy."""
    random.seed(seed)
    if find_spec("numpy") is not None:
        import_module("numpy").random.seed(seed % (1 << 32))


def start_clock(start: float) -> None:
    """Set the wall clock of this process and of those that it starts; seconds since 1970.

    libfaketime is loaded, and reads its variable at each call.
    """
    os.environ["FAKETIME"] = f"{start - time.time():+.6f}"

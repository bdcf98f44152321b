"""Variables by which the C library loads code into a program: user code's programs have them, and no zygote."""

from __future__ import annotations

import os

LOADED = ("LD_", "GLIBC_", "GCONV_PATH")
"""What their names begin with: see ld.so(8)."""
HELD_BACK = "SANDMESH_HELD_"
"""What precedes their names while the process starts that is not to have them."""


def restore() -> None:
    """Rename the variables of this process to what they were, for the programs that it starts."""
    for name in [name for name in os.environ if name.startswith(HELD_BACK)]:
        os.environ[name.removeprefix(HELD_BACK)] = os.environ.pop(name)

"""The protocol of an agent and a kernel over their socket pair.

A message is its kind, one byte, and a payload.
"""

from __future__ import annotations

from typing import Final

from sandmesh.shared import frames

# To the kernel.
RUN: Final = b"\x01"
"""Run the payload, a cell's code in UTF-8."""
RUN_WITH_INPUT: Final = b"\x02"
"""The same, and the message carries the descriptor of the cell's standard input."""
GO_ON: Final = b"\x03"
"""What the last frame that waits asked for is done."""
WARM_UP: Final = b"\x04"
"""Run the payload as RUN does, in a kernel that has run no cell, and forget it after its END."""
FORK: Final = b"\x05"
"""Fork the kernels that are requested on a socket, whose descriptor the message carries. No payload."""
CELLS: Final = frozenset({RUN, RUN_WITH_INPUT, WARM_UP})
"""The kinds whose message is a cell."""
WITH_DESCRIPTOR: Final = frozenset({RUN_WITH_INPUT, FORK})
"""The kinds whose message carries a descriptor."""

# From the kernel.
BLOCK: Final = b"\x10"
"""A content block as JSON in UTF-8. The kernel does not wait."""
BLOCK_WAITS: Final = b"\x11"
"""The same; the kernel waits until the block has its place among the output."""
SYNC: Final = b"\x12"
"""The kernel waits until what it wrote before has its place among the output. No payload."""
END: Final = b"\x13"
"""The cell ended: one byte of flags, then one line about what went wrong, in UTF-8.

A zero byte and JSON may follow: what was raised, as `name`, `value` and the lines of `traceback`.
"""
ASK: Final = b"\x14"
"""The code waits for a line of its input: JSON with `prompt` and `password`; the kernel waits until that was told."""
FORKED: Final = b"\x15"
"""The first frame of a kernel that another one forked: it accepts cells. The payload is its pid in decimal digits."""

FAILED: Final = 1
"""Flag of END: the code raised."""
LEAVES: Final = 2
"""Flag of END: the code asked the kernel to exit, and it does."""

MAX_PAYLOAD: Final = frames.MAX_LINK_MESSAGE - (256 << 10)
"""The most bytes of a payload from the kernel: a block must fit a message of the agent's link."""
MAX_ERROR: Final = 65_536
"""The most bytes of what was raised; of more the traceback goes."""
MAX_TEXT: Final = 262_144
"""A text block with more characters than this is split."""

"""A few nodes drawn at random, so that a claim costs the same however many nodes there are.

The least loaded of so many is near the least loaded of all: with 16 choices a fleet fills as evenly as with every node
(Mitzenmacher, "The power of two choices in randomized load balancing", 2001).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from sandmeshd.allocator.nodes.node import Node

DRAWN = 16
"""How many nodes are drawn; a mesh with no more looks at them all."""

_FEWEST = 4
"""Of fewer that fit, the least loaded could be a busy one."""


def draw(nodes: Sequence[Node], fits: Callable[[Node], bool | None]) -> list[Node]:
    """Return those of some random nodes that fit; none where all nodes have to be looked at.

    That is so where there are few nodes, where few of those that were drawn fit, and where `fits` returns None.
    """
    if len(nodes) <= DRAWN:
        return []
    drawn = random.sample(nodes, DRAWN)
    answers = [fits(node) for node in drawn]
    found = [node for node, answer in zip(drawn, answers, strict=True) if answer]
    return [] if None in answers or len(found) < _FEWEST else found

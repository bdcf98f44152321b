"""The fields that are attacked on one mesh."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.attacks import consoles, doors, egress, notebooks, pages, tenants, trees, urls
from tests.attacks.tally import Tally
from tests.attacks.target import Target, open_target

FIELDS: Final[Mapping[str, Callable[[Target, Tally], Awaitable[None]]]] = {
    "URLs of ports, desktops, browsers and DevTools by path": urls.forge_tokens,
    "the same by name, below SANDMESH_PORTS_DOMAIN": urls.forge_names,
    "E2B's routes with values of other types than published": doors.send_wrong_types,
    "every route of every door about another's sandbox": doors.name_anothers,
    "Jupyter's kernels of another, by routes and by messages": notebooks.reach,
    "the console's routes by sessions of others, of readers, forged, or of other pages": consoles.enter,
    "every RPC about another's sandbox, session, snapshot and token": tenants.call_for_anothers,
    "every RPC with a token that has ended or never was": tenants.show_ended_tokens,
    "remains of another tenant in a pool's and a spare sandbox": tenants.look_for_remains,
    "trees that user code changes under marks, overlays, forks and transfers": trees.race,
    "lines forged in the audit": tenants.forge_lines,
    "a hostile page: DevTools, screens, files, other schemes": pages.load,
}
"""What attacks each field."""

EGRESS: Final = "ways out behind a proxy of the node"


async def run(folder: Path, chosen: Sequence[str] = ()) -> list[Tally]:
    """Attack the chosen fields, by a part of their names, or all."""
    tallies: list[Tally] = []
    async with open_target(folder) as target:
        for name, attack in FIELDS.items():
            if not chosen or any(part in name for part in chosen):
                tallies.append(tally := Tally(name))
                await attack(target, tally)
    if not chosen or any(part in EGRESS for part in chosen):
        tallies.append(tally := Tally(EGRESS))
        await egress.leave(tally)
    return tallies

"""The connections that the sandboxes of a driver share."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import cast

from sandmesh.errors import MeshUnavailable
from sandmeshd.drivers.egress.devices.leases import Devices
from sandmeshd.drivers.egress.proxy import EgressProxy
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.drivers.egress.upstream.dialer import Upstream
from sandmeshd.runtime.listeners import Listeners

from .harness import Here, Names


def proxy(total: int, folder: Path) -> EgressProxy:
    names = Names()
    settings = EgressSettings(total_connections=total)
    upstream = Upstream(settings, names, Here(), Reserved(names, (), Listeners(folder)))
    return EgressProxy(upstream, cast("Devices", None))


def taken(egress: EgressProxy, sandbox_id: str = "sb_one") -> int:
    """Return how many connections one more sandbox gets that takes all it can."""
    held = 0
    with suppress(MeshUnavailable):
        while True:
            egress.acquire(sandbox_id, held)
            held += 1
    return held


def test_however_many_sandboxes_take_all_they_can_another_gets_some(tmp_path: Path) -> None:
    egress = proxy(2048, tmp_path)
    assert taken(egress) > 200
    for _ in range(40):
        taken(egress)
    assert taken(egress) >= 1


def test_an_owner_gets_a_quarter_with_whatever_number_of_sandboxes_and_from_pools_too(tmp_path: Path) -> None:
    egress = proxy(2048, tmp_path)
    for number in range(1000):
        egress.assign(f"sb_{number}", {"session": f"s{number}", "user": "ada"})
    assert sum(taken(egress, f"sb_{number}") for number in range(1000)) == 512
    egress.assign("sb_bob", {"session": "s", "user": "bob"})
    assert taken(egress, "sb_bob") > 50
    # From a pool: nobody's until it is claimed.
    egress.assign("sb_pool", {})
    egress.assign("sb_pool", {"session": "s", "user": "ada"})
    assert taken(egress, "sb_pool") == 0


def test_what_is_released_is_free_for_others(tmp_path: Path) -> None:
    egress = proxy(16, tmp_path)
    first = taken(egress)
    for _ in range(first):
        egress.release("")
    assert taken(egress) == first

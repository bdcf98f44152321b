"""The connections that the sandboxes of a driver share."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from sandmeshd.drivers.egress.devices.leases import Devices
from sandmeshd.drivers.egress.dialer import Upstream
from sandmeshd.drivers.egress.proxy import EgressProxy
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.drivers.egress.settings import EgressSettings
from sandmeshd.runtime.listeners import Listeners

from .harness import Here, Names


def proxy(total: int, folder: Path) -> EgressProxy:
    names = Names()
    settings = EgressSettings(total_connections=total)
    upstream = Upstream(settings, names, Here(), Reserved(names, (), Listeners(folder)))
    return EgressProxy(upstream, cast("Devices", None))


def taken(egress: EgressProxy) -> int:
    """Return how many connections one more sandbox gets that takes all it can."""
    held = 0
    while egress.acquire(held):
        held += 1
    return held


def test_however_many_sandboxes_take_all_they_can_another_gets_some(tmp_path: Path) -> None:
    egress = proxy(2048, tmp_path)
    assert taken(egress) > 200
    for _ in range(40):
        taken(egress)
    assert taken(egress) >= 1


def test_what_is_released_is_free_for_others(tmp_path: Path) -> None:
    egress = proxy(16, tmp_path)
    first = taken(egress)
    for _ in range(first):
        egress.release()
    assert taken(egress) == first

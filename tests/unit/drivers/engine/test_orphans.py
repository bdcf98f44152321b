"""What is ended of a container whose start failed."""

from __future__ import annotations

import secrets
from contextlib import ExitStack

from sandmeshd.drivers.engine.orphans import reap_orphans
from tests.processes import named

HELPERS = ("runsc-sandbox", "runsc-gofer")
GONE, OTHER = secrets.token_hex(32), secrets.token_hex(32)


def test_the_runtimes_processes_of_the_container_end_and_no_others() -> None:
    with ExitStack() as stack:
        left = [
            stack.enter_context(named(name, "-s", "boot", "--bundle", f"/run/{GONE}", GONE))
            for name in ("/x/runsc-sandbox", HELPERS[1])
        ]
        others = [stack.enter_context(named(*one)) for one in ((HELPERS[0], "-s", OTHER), ("sh", "-s", GONE))]
        assert reap_orphans(HELPERS, GONE) == 2
        assert [process.wait(30) for process in left] == [-9, -9]
        assert [process.poll() for process in others] == [None, None]


def test_where_nothing_is_left_nothing_is_ended() -> None:
    assert reap_orphans(HELPERS, GONE) == 0

"""How a sandbox gets a new holder: its agent is told, and its record says so."""

from __future__ import annotations

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import LeaseLost, SandboxNotFound
from sandmeshd.drivers.agent_link import installing_token
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.drivers.bubblewrap.records import Folders, Record, hand_over, read_record
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.runtime.paths import MeshPaths

from .conftest import request_of

pytestmark = pytest.mark.usefixtures("prepared")


async def test_what_fails_while_the_agent_is_told_is_no_lost_sandbox(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        with pytest.raises(OSError, match="no room"):
            async with installing_token(made, 7):
                raise OSError("no room")
        async with installing_token(made, 8):
            pass
        assert (await run(made, "echo in", fencing_token=8)).stdout == "in\n"


async def test_a_record_says_more_than_its_agent_knows_and_never_less(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    folder = Folders(paths).folder("one")
    async with open_driver(settings) as driver:
        await driver.create_sandbox(request_of(settings, "one"))
        record = read_record(folder)
        assert record is not None
        # As when the driver was killed between the two: nobody with a lower token is let in by either.
        Record(record.sandbox, 9).write(folder)
        with pytest.raises(LeaseLost):
            await hand_over(folder, pb.InstallTokenRequest(sandbox_id="one", fencing_token=8))
        await hand_over(folder, pb.InstallTokenRequest(sandbox_id="one", fencing_token=9, record_labels={"a": "b"}))
        kept = read_record(folder)
        assert kept is not None
        assert (kept.fencing_token, dict(kept.sandbox.record_labels)) == (9, {"a": "b"})


async def test_nothing_is_handed_over_where_nothing_is(paths: MeshPaths) -> None:
    with pytest.raises(SandboxNotFound):
        await hand_over(Folders(paths).folder("one"), pb.InstallTokenRequest(sandbox_id="one", fencing_token=1))

"""The life of sandboxes and its events: the SDK and the commands, on one mesh for all tests of this file."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from sandmesh import BaseSandbox
from sandmesh.errors import InvalidArgument
from tests.mesh.commands import Commands, running_mesh


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


@pytest.fixture
def address(sandmesh: Commands) -> str:
    """Give where it listens."""
    return f"unix://{sandmesh.settings.paths.gateway}"


def test_a_box_states_its_times_renews_itself_and_tells_its_life(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address, ttl=600, idle_timeout=300) as box:
        info = box.get_info()
        assert info["idle_timeout"] == "300s"
        box.renew(1200)
        assert box.get_info()["lease"]["expire_time"] > info["lease"]["expire_time"]
        kinds = [event["kind"] for event in box.list_events()]
        assert kinds[0] == "created"
        assert kinds[-1] == "renewed"
        sandbox_id = box.sandbox_id
    lines = sandmesh.run("events", sandbox_id, "-o", "json").out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["kind"] for event in events][:2] == ["created", "leased"]
    assert "stopping" in [event["kind"] for event in events]
    assert {event["sandbox_id"] for event in events} == {sandbox_id}
    assert sandbox_id in sandmesh.run("events").out
    with pytest.raises(InvalidArgument, match="idle_timeout"):
        BaseSandbox(base_url=address, idle_timeout=-1)


def test_events_are_followed_as_they_happen(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address):
        following = sandmesh.start("events", "-f", "-o", "json", "--tail", "1")
        try:
            assert following.stdout is not None
            assert following.stdout.readline(), "earlier events come first"
            with BaseSandbox(base_url=address) as box:
                for line in following.stdout:
                    event = json.loads(line)
                    if (event["sandbox_id"], event["kind"]) == (box.sandbox_id, "leased"):
                        break
        finally:
            following.terminate()
            following.communicate(timeout=20)


def test_a_mesh_that_is_well_has_nothing_to_sweep(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address):
        answer = sandmesh.run("sweep", "--dry-run", "-o", "json").json
        assert not [finding for finding in answer["findings"] if finding["kind"] != "stopping"]
        assert not answer["recovering"]
        assert sandmesh.run("sweep").code == 0

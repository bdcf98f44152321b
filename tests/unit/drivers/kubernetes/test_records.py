"""The records of claims: with agents at once, in Secrets a moment later, and nothing lost between the two."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from typing import Any, cast

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.kubernetes import records
from sandmeshd.drivers.kubernetes.cluster.requests import NOT_FOUND, ApiRefusal, Cluster
from sandmeshd.drivers.kubernetes.kinds import PODS
from sandmeshd.drivers.kubernetes.records import PodRecords
from sandmeshd.drivers.node.records import SpecRecord


class Server:
    """An API server that keeps one Secret."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.patches = 0
        self.is_away = False
        self.written = asyncio.Condition()

    def path(self, kind: str, name: str = "", api: str = "") -> str:
        return f"{api}/{kind}/{name}"

    async def list(self, path: str, selector: str) -> tuple[list[dict[str, Any]], str]:
        return [self.secret] if self.secret else [], "1"

    async def create(self, path: str, body: dict[str, Any]) -> None:
        self.secret = body

    async def delete(self, path: str) -> None:
        self.secret = None

    async def patch(self, path: str, body: dict[str, Any]) -> None:
        self.patches += 1
        async with self.written:
            self.written.notify_all()
        if self.is_away:
            raise RuntimeUnavailable("the API server does not answer", {})
        if self.secret is None:
            raise ApiRefusal(NOT_FOUND, "NotFound", "it is gone")
        self.secret["data"] |= body["data"]

    @property
    def token(self) -> int:
        """The fencing token that the Secret has."""
        assert self.secret is not None
        return int(json.loads(b64decode(self.secret["data"]["record"]))["fencing_token"])

    async def until_patched(self, times: int) -> None:
        """Return when so many patches came."""
        async with asyncio.timeout(20), self.written:
            await self.written.wait_for(lambda: self.patches >= times)


def opened(server: Server) -> PodRecords:
    """Return the records of a driver."""
    return PodRecords(cast("Cluster", server), "mesh", PODS)


def claimed(token: int, session: str = "") -> SpecRecord:
    """Return a record of the sandbox, by who has it."""
    labels = {"session": session} if session else {}
    return SpecRecord(pb.RuntimeSandbox(sandbox_id="one", mesh_id="mesh", record_labels=labels), token)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write soon, and retry soon."""
    monkeypatch.setattr(records, "WRITE_SECONDS", 0.01)
    monkeypatch.setattr(records, "LONGEST_PAUSE", 0.02)


async def test_who_claimed_a_sandbox_is_in_its_secret_a_moment_later() -> None:
    server = Server()
    first = opened(server)
    await first.create(claimed(0), {})
    first.write_late(claimed(7, "theirs"))
    assert first.find("one") == claimed(7, "theirs")
    assert server.token == 0
    await first.close()
    second = opened(server)
    await second.load()
    assert second.find("one") == claimed(7, "theirs")


async def test_what_the_secret_does_not_say_yet_the_next_driver_learns_from_the_agent() -> None:
    server = Server()
    first = opened(server)
    await first.create(claimed(0), {})
    sealed = first.seal(claimed(7, "theirs"))
    # That driver was killed here.
    second = opened(server)
    await second.load()
    assert second.find("one") == claimed(0)
    second.recall("one", sealed)
    assert second.find("one") == claimed(7, "theirs")
    await second.close()
    assert server.token == 7


async def test_an_agent_can_name_no_holder_of_its_own_and_none_of_before() -> None:
    server, other = Server(), Server()
    first, another = opened(server), opened(other)
    await first.create(claimed(0), {})
    await another.create(claimed(0), {})
    forged = another.seal(claimed(9, "mine"))
    old = first.seal(claimed(3, "earlier"))
    await first.write(claimed(7, "theirs"))
    for sealed in (forged, old, b"", b"short", first.seal(claimed(9, "mine"))[:-1]):
        first.recall("one", sealed)
        assert first.find("one") == claimed(7, "theirs")


async def test_a_claim_while_the_api_server_is_away_is_written_once_it_answers() -> None:
    server = Server()
    first = opened(server)
    await first.create(claimed(0), {})
    server.is_away = True
    first.write_late(claimed(7, "theirs"))
    await server.until_patched(3)
    server.is_away = False
    await first.close()
    assert server.token == 7


async def test_of_two_claims_the_later_one_is_written_last() -> None:
    server = Server()
    first = opened(server)
    await first.create(claimed(0), {})
    first.write_late(claimed(7, "theirs"))
    await first.write(claimed(8, "others"))
    assert (server.token, first.find("one")) == (8, claimed(8, "others"))


async def test_a_sandbox_that_is_removed_is_written_no_more() -> None:
    server = Server()
    first = opened(server)
    await first.create(claimed(0), {})
    first.write_late(claimed(7, "theirs"))
    await first.remove("one")
    await first.close()
    assert (server.patches, first.find("one")) == (0, None)
    # Somebody else deleted it.
    await first.create(claimed(0), {})
    first.write_late(claimed(7, "theirs"))
    await server.delete("")
    await first.close()
    assert server.patches == 1


async def test_a_record_without_a_key_is_given_to_no_agent() -> None:
    server = Server()
    first = opened(server)
    await first.create(claimed(0), {})
    assert server.secret is not None
    before = json.loads(b64decode(server.secret["data"]["record"]))
    del before["seal"]
    server.secret["data"]["record"] = b64encode(json.dumps(before).encode()).decode()
    second = opened(server)
    await second.load()
    assert second.find("one") == claimed(0)
    assert second.seal(claimed(7)) == b""

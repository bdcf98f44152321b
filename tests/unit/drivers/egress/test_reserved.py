"""What is refused whatever the grant: the mesh's own listeners, and what its operator reserves."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget, read_hosts
from sandmeshd.drivers.egress.reserved import Reserved
from sandmeshd.runtime.listeners import Listeners
from tests.unit.drivers.egress.harness import Names

HERE = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"]


@pytest.mark.parametrize("address", HERE)
@pytest.mark.parametrize("listening", ["127.0.0.1:8443", "http://[::1]:8443", "https://0.0.0.0:8443", "localhost:8443"])
async def test_a_listener_of_the_mesh_is_refused_by_every_address_of_this_machine(
    tmp_path: Path, address: str, listening: str
) -> None:
    listeners = Listeners(tmp_path / "l")
    reserved = Reserved(Names(localhost=[["127.0.0.1"]]), listeners=listeners)
    with listeners.noted([listening]):
        await reserved.check(EgressTarget(address, 8444), [address])
        with pytest.raises(EgressRefused, match="a service of the mesh itself") as caught:
            await reserved.check(EgressTarget("anything.test", 8443), [address])
    assert str(caught.value).endswith("No grant allows it.")
    await reserved.check(EgressTarget(address, 8443), [address])


async def test_a_store_elsewhere_is_refused_by_its_name_and_its_address(tmp_path: Path) -> None:
    listeners = Listeners(tmp_path / "l")
    reserved = Reserved(Names(redis_corp=[["10.0.0.9"]]), listeners=listeners)
    with listeners.noted(["redis://:secret@redis.corp", "unix:///run/x"]):
        for target, addresses in (
            (EgressTarget("redis.corp", 6379), []),
            (EgressTarget("other.corp", 6379), ["10.0.0.9"]),
        ):
            with pytest.raises(EgressRefused, match="a service of the mesh itself"):
                await reserved.check(target, addresses)
        await reserved.check(EgressTarget("10.0.0.8", 6379), ["10.0.0.8"])
        assert b"secret" not in b"".join(path.read_bytes() for path in (tmp_path / "l").iterdir())


def test_the_note_of_a_process_that_died_counts_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "l"
    folder.mkdir()
    (folder / "1-dead").write_text("127.0.0.1 80")
    assert Listeners(folder).all() == frozenset()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("target", "addresses"), [("db.corp", []), ("alias.test", ["10.0.0.7"])])
async def test_what_the_operator_reserves_is_refused_by_name_and_by_address(target: str, addresses: list[str]) -> None:
    reserved = Reserved(Names(db_corp=[["10.0.0.7"]]), read_hosts(["db.corp:5432"]))
    with pytest.raises(EgressRefused, match="reserved by this mesh's operator"):
        await reserved.check(EgressTarget(target, 5432), addresses)
    await reserved.check(EgressTarget(target, 80), addresses)

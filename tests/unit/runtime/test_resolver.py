"""Names, asked for as every program of this machine does."""

from __future__ import annotations

import asyncio

import pytest

from sandmeshd.runtime.resolver import SystemResolver


async def test_addresses_are_their_own_and_names_are_looked_up() -> None:
    resolver = SystemResolver()
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(resolver.addresses(host) for host in ("127.0.0.2", "::1", "localhost")))
    assert found[:2] == [["127.0.0.2"], ["::1"]]
    assert set(found[2]) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["1.2.3.4.5", "x" * 64 + ".test"])
async def test_what_has_no_address_is_an_error(host: str) -> None:
    async with asyncio.timeout(60):
        with pytest.raises(OSError, match=r"."):
            await SystemResolver().addresses(host)


async def test_more_questions_than_threads_are_all_answered() -> None:
    resolver = SystemResolver()
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(resolver.addresses("127.0.0.1") for _ in range(200)))
    assert found == [["127.0.0.1"]] * 200

"""A short fuzz of every public RPC and of each parser of bytes from sandboxes, and the inputs that once broke one."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .campaign import PARSERS, TARGETS, Plan, keep, run_all
from .mutation import mutated
from .target import Fault, Target, stream_of
from .targets.wire import simple
from .worker import Faults

CORPUS = Path(__file__).parent / "corpus"
SEED = 20_260
SECONDS = 3.0
LEAST = 20
"""The fewest inputs that show that a target was really tried, on a machine that is busy."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", PARSERS)
async def test_no_input_breaks_a_parser(module: str) -> None:
    runs = await run_all(list(PARSERS[module]), Plan(SEED, SECONDS), 2, lambda _: None)
    broken = [f"{keep(run)[0]}: {run.failures[0].where}\n{run.failures[0].text}" for run in runs if run.failures]
    assert not broken, "\n".join(broken)
    assert {run.target: run.tried for run in runs if run.tried < LEAST} == {}


@contextmanager
def watched(faults: Faults) -> Generator[None]:
    asyncio.get_running_loop().set_exception_handler(faults.in_loop)
    logging.getLogger().addHandler(faults)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(faults)


async def feed(target: Target, data: bytes) -> str:
    faults = Faults()
    with watched(faults):
        async with target.open() as opened:
            found = opened(data)
            outcome = await found if inspect.isawaitable(found) else found
    assert faults.found == {}
    return outcome


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*.bin")), ids=lambda path: f"{path.parent.name}/{path.stem}")
async def test_an_input_that_once_broke_a_parser_breaks_it_no_more(path: Path) -> None:
    async with asyncio.timeout(60):
        await feed(TARGETS[path.parent.name], path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_depends_on_its_seed_and_number_alone(name: str) -> None:
    made = [TARGETS[name].make(stream_of(SEED, name, number)) for number in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


async def test_a_parser_that_raises_loops_or_dies_is_found_with_the_input(tmp_path: Path) -> None:
    def broken(data: bytes) -> str:
        raise Fault(f"{len(data)} bytes")

    target = Target("broken", lambda random: mutated(random, b"some bytes"), simple(broken))
    with pytest.raises(Fault):
        await feed(target, target.make(stream_of(SEED, "broken", 0)))

"""Environments of Gymnasium in sandboxes, with the real package on both sides."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from gymnasium.utils.env_checker import check_env

from sandmesh import TrainingSandbox, errors
from sandmesh.integrations.gym import SandmeshEnv
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

# Of the package itself; they span all kinds of spaces that it has.
NAMES = ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "FrozenLake-v1", "Taxi-v4", "Acrobot-v1"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncGenerator[str]:
    """Run a mesh and yield its address."""
    async with run_mesh() as mesh:
        yield mesh.addresses[0]


async def in_a_box(address: str, program: Callable[[TrainingSandbox], Any]) -> Any:
    """Run a program without an event loop on a sandbox."""

    def run() -> Any:
        with TrainingSandbox(base_url=address, timeout=200) as box:
            return program(box)

    return await asyncio.to_thread(run)


@pytest.mark.parametrize("name", NAMES)
async def test_gymnasiums_own_checker_accepts_an_environment(address: str, name: str) -> None:
    def check(box: TrainingSandbox) -> None:
        with warnings.catch_warnings():
            # Of spaces without bounds, which these environments have in a process of one's own, too.
            warnings.simplefilter("ignore", UserWarning)
            check_env(SandmeshEnv(name, box), skip_render_check=True)

    await in_a_box(address, check)


async def test_a_seed_gives_the_same_episode_as_in_the_programs_own_process(address: str) -> None:
    import gymnasium  # noqa: PLC0415 - beside the one in the sandbox

    def episode(env: Any) -> list[float]:
        seen, _ = env.reset(seed=11)
        values = [*seen]
        for number in range(200):
            seen, reward, terminated, truncated, _ = env.step(np.int64(number % 2))
            values += [*seen, reward]
            if terminated or truncated:
                break
        return [float(value) for value in values]

    there = await in_a_box(address, lambda box: episode(SandmeshEnv("CartPole-v1", box)))
    assert there == pytest.approx(episode(gymnasium.make("CartPole-v1")), abs=1e-6)


async def test_two_environments_share_a_sandbox_and_an_unknown_one_leaves_nothing(address: str) -> None:
    def program(box: TrainingSandbox) -> None:
        one, other = SandmeshEnv("CartPole-v1", box), SandmeshEnv("FrozenLake-v1", box, is_slippery=False)
        assert one.reset(seed=1)[0].shape == (4,)
        assert other.reset(seed=1)[0] == 0
        assert other.step(1)[0] == 4
        one.close()
        one.close()
        assert other.step(1)[0] == 8
        with pytest.raises(errors.InvalidArgument, match="no environment 'Nothing-v0'"):
            SandmeshEnv("Nothing-v0", box)
        with pytest.raises(errors.WrongState, match="call reset"):
            one.step(0)

    await in_a_box(address, program)

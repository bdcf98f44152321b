"""Training environments on the drivers of an engine, from images that are built of their packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, BFCLSandboxAsync, TrainingSandboxAsync
from tests.conformance.test_docker_screens import GVISOR, image
from tests.engine import in_full
from tests.mesh.conftest import run_mesh

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(900)]

TASKS = "description: Tasks that write below the root.\nscratch: [/app, /logs]\n"


@pytest.mark.parametrize("driver", ["docker", GVISOR] if in_full() else ["docker"])
async def test_episodes_of_each_kind_end_with_their_scores(driver: str, engine: str, tmp_path: Path) -> None:
    for name in ("training", "textarena", "bfcl"):
        await image(engine, name)
    (tmp_path / "tasks.yaml").write_text(TASKS)
    async with run_mesh(driver=driver, docker_url=engine, templates=(tmp_path / "tasks.yaml",)) as mesh:
        options: dict[str, Any] = {"base_url": mesh.addresses[0], "timeout": 120}
        async with TrainingSandboxAsync(**options) as box:
            seen = [(await box.create_instance("gym:CartPole-v1", "7", name))["state"] for name in "ab"]
            assert seen[0] == seen[1]
            assert (await box.step("a", {"action": 1}))["reward"] == await box.evaluate("a") == 1.0
        async with TrainingSandboxAsync(sandbox_type="textarena", **options) as box:
            first = await box.create_instance("textarena:GuessTheNumber-v0", "0", "a")
            assert "guess the number between 1 and 20" in first["state"][0]["content"]
            assert not (await box.step("a", {"role": "assistant", "content": "[1]"}))["is_terminated"]
        async with BFCLSandboxAsync(**options) as box:
            task = (await box.get_task_ids("bfcl:simple_python"))[0]
            await box.create_instance("bfcl", task, "a", params={"category": "simple_python"})
            last = await box.step("a", {"role": "assistant", "content": "no call"})
            assert last["is_terminated"]
            assert (last["reward"], (await box.evaluate("a"))["accuracy"]) == (0.0, 0.0)
        async with BaseSandboxAsync(sandbox_type="tasks", **options) as tasks:
            written = await tasks.run_shell_command("mkdir -m 777 /logs/agent && echo 1 > /app/a && cat /app/a")
            assert written.stdout == "1\n"
            assert (await tasks.run_shell_command("touch /b")).exit_code == 1

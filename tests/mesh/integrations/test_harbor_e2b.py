"""Harbor's own environment for E2B, unmodified, at the door of a mesh; its package has a Python of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandmeshd.facades.e2b.envd.paths import HOME
from tests.environments import environment_of, newer_python
from tests.mesh.doors.e2b.e2b_world import World, open_world

pytestmark = [pytest.mark.needs("python 3.12"), pytest.mark.timeout(1200)]

HARBOR = ("harbor[e2b]==0.25.0", "e2b==2.63.0")
TEMPLATE = """\
extends: e2b-base
scratch: [/logs, /solution, /tests]   # where Harbor has its files: a system is read-only else
"""
DOCKERFILE = f"""\
FROM harbor
ENV ANSWER=42
WORKDIR {HOME}/app
COPY question.txt .
RUN mkdir made && tr a-z A-Z < question.txt > made/question.txt
"""
SOLVE = "#!/bin/bash\nset -e\ngrep -q SEVEN made/question.txt\necho $ANSWER > answer.txt\n"
TEST = """\
#!/bin/bash
echo 0 > /logs/verifier/reward.txt
[ "$(cat answer.txt)" = 42 ] && echo 1 > /logs/verifier/reward.txt
"""
# Its command line, several times in one process: importing it takes seconds.
START = """
import json, sys
from harbor.cli.main import app

for arguments in json.loads(sys.argv[1]):
    app(arguments, prog_name="harbor", standalone_mode=False)
"""


async def harbor(world: World, key: str, home: Path, *commands: tuple[str, ...]) -> str:
    """Run its command line, with what the mesh says that clients need, and a key."""
    python = await asyncio.to_thread(environment_of, *HARBOR, with_own=False, python=newer_python())
    variables = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": key, "HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        *(str(python), "-c", START, json.dumps(commands)),
        cwd=home,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


def fill(task: Path) -> None:
    """Give a task of the package's template its environment, solution and tests."""
    (task / "environment" / "Dockerfile").write_text(DOCKERFILE)
    (task / "environment" / "question.txt").write_text("six times seven\n")
    (task / "solution" / "solve.sh").write_text(SOLVE)
    (task / "tests" / "test.sh").write_text(TEST)


def rewards(jobs: Path) -> dict[str, Any]:
    """Return the rewards by agent, or what was raised instead."""
    found: dict[str, Any] = {}
    for path in jobs.glob("*/*/*/result.json"):
        result: dict[str, Any] = json.loads(path.read_text())
        verified = result["verifier_result"]
        reward = verified["rewards"]["reward"] if verified else result["exception_info"]
        found[path.relative_to(jobs).parts[0]] = reward
    return found


async def test_harbors_environment_for_e2b_runs_tasks_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "harbor.yaml").write_text(TEMPLATE)
    async with open_world(templates=[str(tmp_path / "harbor.yaml")]) as world:
        key = await world.key("harbor")
        tasks, jobs = tmp_path / "tasks", tmp_path / "jobs"
        await harbor(
            world,
            key,
            tmp_path,
            ("task", "init", "-p", str(tasks), "--no-pytest", "acme/answer", "--verifier-mode", "shared"),
        )
        fill(tasks / "answer")
        run = ("run", "--path", str(tasks), "--env", "e2b", "--yes")
        await harbor(
            world,
            key,
            tmp_path,
            *((*run, "--agent", agent, "--jobs-dir", str(jobs / agent)) for agent in ("oracle", "nop")),
        )
        assert rewards(jobs) == {"oracle": 1.0, "nop": 0.0}
        assert (await world.send("GET", "/v2/sandboxes", {"X-API-KEY": key}))[1] == []

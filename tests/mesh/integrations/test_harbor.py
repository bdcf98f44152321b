"""Harbor's own runner with tasks made by its own template, in sandboxes; its package has a Python of its own."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sandmesh import MeshAsync
from sandmeshd.mesh import Mesh
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.environments import environment_of, newer_python
from tests.image_roots import host_root, write_image
from tests.mesh.conftest import MeshMaker
from tests.mesh.integrations.test_integrations import run_there

pytestmark = [pytest.mark.needs("python 3.12"), pytest.mark.timeout(1200)]

HARBOR = ("harbor==0.25.0",)
ENVIRONMENT = "sandmesh.integrations.harbor:SandmeshEnvironment"

DOCKERFILE = """\
FROM ubuntu:24.04
ENV ANSWER=42 WHERE=/app/made
WORKDIR /app
COPY question.txt .
RUN mkdir made && tr a-z A-Z < question.txt > made/question.txt
"""
SOLVE = "#!/bin/bash\nset -e\ncat $WHERE/question.txt\necho $ANSWER > answer.txt\ncp answer.txt /logs/artifacts/\n"
TEST = """\
#!/bin/bash
echo 0 > /logs/verifier/reward.txt
[ "$(cat {place}/answer.txt)" = 42 ] && echo 1 > /logs/verifier/reward.txt
"""


# Its command line, several times in one process: importing it takes seconds.
START = """
import json, sys
from harbor.cli.main import app

for arguments in json.loads(sys.argv[1]):
    app(arguments, prog_name="harbor", standalone_mode=False)
"""


class Harbor:
    """Harbor's command line in an environment of its own, on a mesh."""

    def __init__(self, folder: Path, mesh: Mesh) -> None:
        self._folder, self._mesh = folder, mesh
        self.tasks, self.jobs = folder / "tasks", folder / "jobs"

    async def __call__(self, *commands: Sequence[str]) -> str:
        python = await asyncio.to_thread(environment_of, *HARBOR, python=newer_python())
        home = Path(tempfile.mkdtemp(dir=self._folder))
        code, output = await run_there(python, home, self._mesh, "-c", START, json.dumps(commands))
        assert code == 0, output
        return output

    async def make(self, **verifiers: str) -> None:
        """Make tasks by the package's template, each with its mode of verifier, and fill them in."""
        init = ("task", "init", "-p", str(self.tasks), "--no-pytest")
        await self(*((*init, f"acme/{name}", "--verifier-mode", mode) for name, mode in verifiers.items()))
        for name, mode in verifiers.items():
            task = self.tasks / name
            (task / "environment" / "Dockerfile").write_text(DOCKERFILE)
            (task / "environment" / "question.txt").write_text("six times seven\n")
            (task / "solution" / "solve.sh").write_text(SOLVE)
            place = "/app" if mode == "shared" else "/logs/artifacts"
            (task / "tests" / "test.sh").write_text(TEST.format(place=place))

    async def run(self, *agents: str, options: Sequence[str] = ()) -> dict[str, dict[str, object]]:
        """Run all tasks with each agent, and return the rewards by agent and task, or what was raised instead."""
        run = ("run", "--path", str(self.tasks), "--env", ENVIRONMENT, "--yes", *options)
        await self(*((*run, "--agent", agent, "--jobs-dir", str(self.jobs / agent)) for agent in agents))
        return {agent: dict(self._results(self.jobs / agent)) for agent in agents}

    def _results(self, jobs: Path) -> Iterator[tuple[str, object]]:
        for path in jobs.glob("*/*/result.json"):
            result: dict[str, Any] = json.loads(path.read_text())
            verified = result["verifier_result"]
            reward = verified["rewards"]["reward"] if verified else result["exception_info"]["exception_message"]
            yield result["task_name"].rpartition("/")[2], reward


async def test_the_oracle_of_harbor_solves_tasks_of_its_template_and_an_idle_agent_does_not(
    mesh: Mesh, tmp_path: Path
) -> None:
    harbor = Harbor(tmp_path, mesh)
    await harbor.make(shared="shared", separate="separate", broken="shared")
    broken = "FROM ubuntu:24.04\nRUN apt-get install -y cowsay\n"
    (harbor.tasks / "broken" / "environment" / "Dockerfile").write_text(broken)
    rewards = await harbor.run("oracle", "nop")
    refusals = [str(rewards[agent].pop("broken")) for agent in rewards]
    assert rewards == {"oracle": {"shared": 1.0, "separate": 1.0}, "nop": {"shared": 0.0, "separate": 0.0}}
    assert all("line 2 of the Dockerfile, RUN apt-get install -y cowsay" in refusal for refusal in refusals), refusals
    async with MeshAsync(mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []


async def test_a_task_runs_in_its_own_image(make_mesh: MeshMaker, tmp_path: Path) -> None:
    images = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    try:
        base = await asyncio.to_thread(write_image, images / "base", (host_root(),), Env=["PATH=/usr/bin:/bin"])
        async with make_mesh(image_store={"images": images / "store"}) as mesh:
            harbor = Harbor(tmp_path, mesh)
            await harbor.make(rooted="shared")
            lines = (f"FROM {base} AS one", "RUN mkdir /made && cat > /made/by <<END", "$(id -un)", "END")
            more = (f"FROM {base}", "COPY --from=one /made /made", "ENV WHERE=/made ANSWER=42", "WORKDIR /app")
            text = "\n".join((*lines, *more, "COPY question.txt /made/", "RUN grep -q root /made/by"))
            (harbor.tasks / "rooted" / "environment" / "Dockerfile").write_text(text)
            rewards = await harbor.run("oracle", options=("--ek", "images=true"))
            assert rewards == {"oracle": {"rooted": 1.0}}
    finally:
        await asyncio.to_thread(remove_tree, images)

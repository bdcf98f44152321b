"""Agents' frameworks with an image that somebody else made, as their benchmarks name one for each task."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sandmesh.mesh import MeshAsync
from tests.environments import environment_of
from tests.image_layouts import file_entry, make_tar
from tests.image_roots import host_root
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_image_roots import mesh_with
from tests.mesh.integrations.test_integrations import MINI_SWE_AGENT, run_there
from tests.mesh.integrations.test_swe_rex import SWE_REX

pytestmark = [pytest.mark.needs("busybox"), pytest.mark.needs("uids for sandboxes"), pytest.mark.timeout(900)]

MINI = """
import json, sys
from minisweagent.environments import get_environment

name = "sandmesh.integrations.mini_swe_agent.SandmeshEnvironment"
environment = get_environment({"environment_class": name, "image": sys.argv[1], "cwd": "/testbed"})
done = environment.execute({"command": "pwd; cat task; id -u; cat /etc/passwd | head -1"})
print("said", json.dumps([done["output"], done["returncode"], environment.get_template_vars()["system"]]))
environment.cleanup()
"""
REX = """
import asyncio, json, sys
from sandmesh.integrations.swe_rex import SandmeshDeploymentConfig
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

async def main():
    deployment = SandmeshDeploymentConfig(image=sys.argv[1], root=False).get_deployment()
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    done = await deployment.runtime.run_in_session(BashAction(command="cd /testbed && cat task; id -u"))
    print("said", json.dumps([done.output, done.exit_code]))
    await deployment.stop()

asyncio.run(main())
"""


def _image() -> dict[str, Any]:
    task = make_tar(file_entry("testbed/task", b"mend it\n"))
    return {"task": ((host_root("uname", "dirname", "stty"), task), {"Env": ["PATH=/usr/bin"]})}


@pytest.mark.parametrize(
    ("packages", "program", "expected"),
    [
        (MINI_SWE_AGENT, MINI, ["/testbed\nmend it\n0\nroot:x:0:0:root:/root:/bin/bash\n", 0, "Linux"]),
        (SWE_REX, REX, ["mend it\n1000\n", 0]),
    ],
    ids=["mini-swe-agent", "swe-rex"],
)
async def test_a_task_runs_in_the_image_that_it_names(
    make_mesh: MeshMaker, tmp_path: Path, packages: tuple[str, ...], program: str, expected: list[Any]
) -> None:
    python = await asyncio.to_thread(environment_of, *packages)
    (tmp_path / "program.py").write_text(program)
    async with mesh_with(make_mesh, _image()) as (mesh, folder):
        code, output = await run_there(python, tmp_path, mesh, "program.py", f"oci:{folder}/task")
        assert code == 0, output
        said = [line.removeprefix("said ") for line in output.splitlines() if line.startswith("said ")]
        assert [json.loads(line) for line in said] == [expected], output
        async with MeshAsync(mesh.addresses[0]) as client:
            assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []

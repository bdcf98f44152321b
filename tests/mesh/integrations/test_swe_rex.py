"""The deployment and runtime of SWE-ReX, beside the package's own runtime of this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmesh import MeshAsync
from sandmeshd.mesh import Mesh
from tests.environments import environment_of
from tests.mesh.integrations.test_integrations import run_there

SWE_REX = ("swe-rex==1.4.0",)

# Each call is made of both runtimes: what they return, or the exception, must be the same.
PROGRAM = """
import asyncio, signal, sys
from pathlib import Path
import pexpect
from sandmesh.integrations.swe_rex import SandmeshDeploymentConfig
from swerex.exceptions import DeploymentNotStartedError, SwerexException
from swerex.runtime.abstract import *
from swerex.runtime.abstract import AbstractRuntime
from swerex.runtime.local import LocalRuntime

# Where the tests run in the background of a shell these are ignored, and so they would be by the local runtime's shell.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
folder = Path(sys.argv[1])
(folder / "tree" / "inner").mkdir(parents=True)
(folder / "tree" / "inner" / "run.sh").write_text("#!/bin/sh\\necho ran $1\\n")
(folder / "tree" / "inner" / "run.sh").chmod(0o755)
here = "$PWD"

def bash(command, **more):
    return "run_in_session", BashAction(command=command, **{"timeout": 20, **more})

CALLS = [
    bash("echo early"),
    ("create_session", CreateBashSessionRequest(startup_timeout=10)),
    ("create_session", CreateBashSessionRequest()),
    bash("echo one; echo two >&2"),
    bash("X=kept; f() { echo of a function: $X; }"),
    bash("f\\nexit_code() { return 7; }\\nexit_code", check="silent"),
    bash("false"),
    bash("false", check="ignore"),
    bash("if true; then"),
    bash("cat <<'END'\\na 'quoted' \\"text\\"\\nEND"),
    bash("printf 'no line break'"),
    bash("cd /tmp && pwd"),
    bash("sleep 60", timeout=1),
    ("run_in_session", BashInterruptAction(timeout=5)),
    bash("echo after; (exit 3)", check="silent"),
    bash("python3 -q", is_interactive_command=True, expect=[">>> "]),
    bash("print(6 * 7)", is_interactive_command=True, expect=[">>> "]),
    bash("exit()", is_interactive_quit=True),
    bash("echo back"),
    ("create_session", CreateBashSessionRequest(session="other", startup_timeout=10)),
    bash("echo ${X:-unset}", session="other"),
    ("close_session", CloseBashSessionRequest(session="other")),
    ("close_session", CloseBashSessionRequest(session="other")),
    ("execute", Command(command=["sh", "-c", "echo out; echo err >&2; exit 4"])),
    ("execute", Command(command="echo $((6 * 7))", shell=True)),
    ("execute", Command(command="echo out; echo err >&2", shell=True, merge_output_streams=True)),
    ("execute", Command(command=["false"], check=True)),
    ("execute", Command(command=["no-such-program"])),
    ("execute", Command(command=["sleep", "60"], timeout=0.5)),
    ("execute", Command(command=["pwd"], cwd="/usr")),
    ("write_file", WriteFileRequest(path="ROOT/made/file.txt", content="text: \\u00e9\\n")),
    ("read_file", ReadFileRequest(path="ROOT/made/file.txt")),
    ("read_file", ReadFileRequest(path="ROOT/made/file.txt", encoding="latin-1")),
    ("read_file", ReadFileRequest(path="ROOT/made/missing.txt")),
    ("upload", UploadRequest(source_path=str(folder / "tree"), target_path="ROOT/uploaded")),
    ("execute", Command(command=["ROOT/uploaded/inner/run.sh", "it"], shell=False)),
    ("upload", UploadRequest(source_path=str(folder / "tree/inner/run.sh"), target_path="ROOT/made/copied.sh")),
    ("upload", UploadRequest(source_path=str(folder / "tree/inner/run.sh"), target_path="ROOT/made")),
    ("execute", Command(command="ls ROOT/made", shell=True)),
]

async def outcome(runtime, name, request, root, attempts=4):
    request = type(request).model_validate_json(request.model_dump_json().replace("ROOT", root))
    try:
        try:
            found = (await getattr(runtime, name)(request)).model_dump()
        except pexpect.EOF:
            # The package's own runtime writes to a shell 0.3 s after it was started: it may end where it was not ready.
            if name != "create_session" or not isinstance(runtime, LocalRuntime) or attempts == 1:
                raise
            del runtime.sessions[request.session]
            return await outcome(runtime, name, request, root, attempts - 1)
        # What each runtime's own shell adds: the prompt that ended a command, and empty lines and carriage returns.
        found.pop("expect_string", None)
        if name in ("create_session", "run_in_session"):
            found["output"] = "" if name == "create_session" else found["output"].replace("\\r", "").strip()
        return found
    except (SwerexException, OSError) as error:
        return type(error).__name__

async def main():
    deployment = SandmeshDeploymentConfig().get_deployment()
    try:
        await deployment.is_alive()
    except DeploymentNotStartedError:
        print("not started")
    await deployment.start()
    assert (await deployment.is_alive()).is_alive
    assert isinstance(deployment.runtime, AbstractRuntime)
    local, differ = LocalRuntime(), 0
    (folder / "root").mkdir()
    for name, request in CALLS:
        expected = await outcome(local, name, request, str(folder / "root"))
        found = await outcome(deployment.runtime, name, request, "/workspace")
        if expected != found:
            differ += 1
            print("DIFFERS", name, request, "\\n   local:", expected, "\\n sandbox:", found)
    runtime = deployment.runtime
    await deployment.stop()
    await deployment.stop()
    assert not (await runtime.is_alive()).is_alive
    print(f"calls: {len(CALLS)}, differ: {differ}")

asyncio.run(main())
"""


@pytest.mark.timeout(900)
async def test_the_runtime_of_swe_rex_does_what_the_packages_own_does(mesh: Mesh, tmp_path: Path) -> None:
    python = await asyncio.to_thread(environment_of, *SWE_REX)
    (tmp_path / "program.py").write_text(PROGRAM)
    code, output = await run_there(python, tmp_path, mesh, "program.py", str(tmp_path))
    assert code == 0, output
    assert "not started" in output
    assert "calls: 39, differ: 0" in output, output
    async with MeshAsync(mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []

"""The tests that frameworks publish for their providers of sandboxes, run on this repository's adapters."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from sandmesh import MeshAsync
from tests.environments import environment_of
from tests.mesh.doors.e2b.e2b_world import World, open_world
from tests.mesh.integrations.test_integrations import run_there

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

SUITE = ("langchain-tests==1.1.9", "pytest==9.2.0", "pytest-asyncio==1.5.0")
# Its metadata asks for a deepagents below 0.7.
LANGCHAIN_E2B = "langchain-e2b==0.0.6"
NATIVE = """
import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests
from sandmesh import BaseSandbox
from sandmesh.integrations.deepagents import SandmeshSandbox


class TestNative(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with BaseSandbox() as box:
            yield SandmeshSandbox(box)
"""
DOOR = """
import pytest
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestDoor(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox.create() as box:
            yield E2BSandbox(sandbox=box)
"""
# What deepagents 0.7 itself does otherwise than the suite: absolute paths, no folders, and writes that replace.
CHANGED = {
    "test_glob",
    "test_glob_basic_pattern",
    "test_glob_with_directories",
    "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class",
    "test_glob_with_question_mark",
    "test_write_existing_file_fails",
}
TESTS = 86


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all suites."""
    async with open_world() as running:
        yield running


@pytest.mark.parametrize(
    ("suite", "deepagents", "failures"),
    [(NATIVE, "0.6.12", set[str]()), (NATIVE, "0.7.32", CHANGED), (DOOR, "0.7.32", CHANGED)],
    ids=["native-0.6", "native-0.7", "door-0.7"],
)
async def test_langchains_tests_of_sandboxes_pass_but_for_what_deepagents_changed(
    world: World, tmp_path: Path, suite: str, deepagents: str, failures: set[str]
) -> None:
    packages = (*SUITE, f"deepagents=={deepagents}", "e2b==2.63.0")
    python = await asyncio.to_thread(environment_of, *packages, alone=(LANGCHAIN_E2B,))
    (tmp_path / "test_suite.py").write_text(suite)
    options = ("-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "-rf", "--tb=short")
    variables = {**world.mesh.e2b, "E2B_API_KEY": await world.key(tmp_path.name)}
    code, output = await run_there(python, tmp_path, world.mesh, "-m", "pytest", *options, "test_suite.py", **variables)
    failed = {line.split("::")[-1].split()[0] for line in output.splitlines() if line.startswith("FAILED ")}
    assert failed == failures, output
    assert f"{TESTS - len(failures)} passed" in output, output
    assert code == (1 if failures else 0), output
    async with MeshAsync(world.mesh.addresses[0]) as client:
        assert [sandbox for sandbox in await client.sandboxes.list() if sandbox.in_use] == []


BOUNDS = """
import asyncio
import os
import shutil
import subprocess
from sandmesh import BaseSandbox
from sandmesh.integrations.deepagents import SandmeshSandbox


async def cancelled(backend):
    # It has begun, and then its caller goes away.
    working = asyncio.create_task(backend.aexecute("touch begun; sleep 1000; touch /workspace/went-on"))
    while (await backend.aexecute("ls begun")).exit_code != 0:
        await asyncio.sleep(0.05)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert working.cancelled()
    return (await backend.aexecute("pgrep -x sleep")).output


with BaseSandbox() as box:
    backend = SandmeshSandbox(box, most_output=1000)
    assert asyncio.run(cancelled(backend)) == ""
    cut = backend.execute("yes x | head -c 5000000; exit 3")
    assert (len(cut.output), cut.exit_code, cut.truncated) == (1000, 3, True), cut
    late = backend.execute("echo before; sleep 100", timeout=1)
    assert late.exit_code == 124 and late.output.startswith("before\\n") and not late.truncated, late
    both = backend.execute("for n in 1 2 3; do echo out; echo err >&2; done")
    assert both.output == "out\\nerr\\n" * 3, both
    assert backend.execute("kill -9 $$").exit_code == 137
    [written] = backend.upload_files([("/proc/none/it", b"x" * 5_000_000)])
    assert written.error == "file_not_found", written
    [large] = backend.download_files(["/dev/zero"])
    assert large.content is None and large.error == "it is larger than 268435456 bytes", large.error
    try:
        backend.execute("true", timeout=-1)
    except ValueError as error:
        print("refused:", error)
"""


async def test_a_backend_of_deepagents_bounds_what_it_returns_and_ends_what_nobody_waits_for(
    world: World, tmp_path: Path
) -> None:
    python = await asyncio.to_thread(
        environment_of, *SUITE, "deepagents==0.6.12", "e2b==2.63.0", alone=(LANGCHAIN_E2B,)
    )
    (tmp_path / "bounds.py").write_text(BOUNDS)
    code, output = await run_there(python, tmp_path, world.mesh, "bounds.py")
    assert code == 0, output
    assert "refused: timeout must be 0 or more seconds, not -1" in output


AGENTS_SDK = ("openai-agents==0.24.0", "e2b==2.63.0", "e2b-code-interpreter==2.11.5", *SUITE[1:])
# The SDK's tests of sessions are of its local sandbox; here they get its client for E2B.
PLUGIN = """
import agents.sandbox.sandboxes.unix_local as local
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType


class Client:
    async def create(self, **options):
        options["options"] = E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B)
        return await E2BSandboxClient().create(**options)


local.UnixLocalSandboxClient = Client
"""
SESSION_TESTS = {
    "test_pty_exec_write_poll_and_unknown_session_errors",
    "test_pty_ctrl_c_interrupts_long_running_process",
    "test_pty_terminal_signals_interrupt_even_if_parent_ignores_signal[sigint]",
    "test_pty_terminal_signals_interrupt_even_if_parent_ignores_signal[sigquit]",
    "test_non_tty_pty_session_rejects_stdin_and_can_still_be_polled",
    "test_stop_terminates_active_pty_sessions",
}
# The client types a command with a terminal into a shell, which is still there when the command has ended.
OF_THE_SHELL = {name for name in SESSION_TESTS if "test_pty_" in name}


def unpack(folder: Path) -> Path:
    """Unpack the source distribution in a folder; return where it is."""
    [packed] = folder.glob("*.tar.gz")
    shutil.unpack_archive(packed, folder / "unpacked")
    [made] = (folder / "unpacked").iterdir()
    return made


async def test_the_agents_sdks_tests_of_terminals_pass_but_for_those_that_its_client_runs_in_a_shell(
    world: World, tmp_path: Path
) -> None:
    python = await asyncio.to_thread(environment_of, *AGENTS_SDK, with_own=False)
    source = ("download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(tmp_path), AGENTS_SDK[0])
    code, output = await run_there(python, tmp_path, world.mesh, "-m", "pip", *source)
    assert code == 0, output
    folder = await asyncio.to_thread(unpack, tmp_path)
    (folder / "on_a_mesh.py").write_text(PLUGIN)
    tests = [f"tests/sandbox/test_unix_local.py::TestUnixLocalPty::{name}" for name in sorted(SESSION_TESTS)]
    options = ("-q", "--noconftest", "-p", "on_a_mesh", "-o", "asyncio_mode=auto", "-rf", "--tb=line", "-W", "ignore")
    variables = {**world.mesh.e2b, "E2B_API_KEY": await world.key(tmp_path.name), "PYTHONPATH": str(folder)}
    program = await asyncio.create_subprocess_exec(
        str(python),
        *("-m", "pytest", *options, *tests),
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(program.communicate(), 300)
    failed = {line.split("::")[-1].split(" - ")[0] for line in said.decode().splitlines() if line.startswith("FAILED ")}
    assert failed == OF_THE_SHELL, said.decode()
    assert f"{len(SESSION_TESTS) - len(OF_THE_SHELL)} passed" in said.decode()

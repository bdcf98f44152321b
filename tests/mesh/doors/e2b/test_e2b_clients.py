"""E2B's own clients, as they are published, against a mesh: the programs of examples/e2b."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.environments import environment_of
from tests.mesh.doors.e2b.e2b_reference import RUN, examples
from tests.mesh.doors.e2b.e2b_world import World, open_world
from tests.npm import install
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "e2b"
CLIENTS = ("e2b==2.63.0", "e2b-code-interpreter==2.11.5", "e2b-desktop==2.7.2")
PREVIOUS = ("e2b==2.21.1", "e2b-code-interpreter==2.6.2")
PREVIOUS_NODE = Path(__file__).resolve().parents[3] / "e2b_previous"
PROGRAMS = (
    "sandbox.py",
    "interpreter.py",
    "pauses.py",
    "templates.py",
    "refusals.py",
    "newest.py",
    "volumes.py",
    "rest.py",
)
SECONDS = 400


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def named() -> AsyncGenerator[World]:
    """Run one mesh for all tests whose clients reach sandboxes by names."""
    async with open_world(e2b_domain="mesh.localhost") as running:
        yield running


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the clients into a directory of their own."""
    target = tmp_path_factory.mktemp("e2b") / "library"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), *CLIENTS]
    subprocess.run(command, check=True, timeout=SECONDS)
    return target


@pytest.mark.parametrize("name", PROGRAMS)
async def test_an_unmodified_client_needs_environment_variables_alone(world: World, library: Path, name: str) -> None:
    program = (sys.executable, str(EXAMPLES / name))
    await answers(world, name, program, PYTHONPATH=str(library))


@pytest.mark.needs("names")
@pytest.mark.parametrize("name", ["sandbox.py", "interpreter.py", "pauses.py", "hosts.py"])
async def test_clients_of_half_a_year_ago_reach_sandboxes_by_names(named: World, name: str) -> None:
    python = await asyncio.to_thread(environment_of, *PREVIOUS, with_own=False)
    await answers(named, f"previous-{name}", (str(python), str(EXAMPLES / name)))


@pytest.mark.needs("names")
@pytest.mark.parametrize("name", ["hosts.py", "gateway.py"])
async def test_servers_in_sandboxes_have_names_of_their_own(named: World, library: Path, name: str) -> None:
    await answers(named, name, (sys.executable, str(EXAMPLES / name)), PYTHONPATH=str(library))


@pytest.mark.needs("names")
@pytest.mark.needs("desktop")
async def test_desktops_of_unmodified_clients_have_xfce_and_a_stream(
    named: World, library: Path, packages: Path
) -> None:
    await answers(named, "desktop", (sys.executable, str(EXAMPLES / "desktop.py")), PYTHONPATH=str(library))
    await answers(named, "desktop-node", ("node", str(packages / "desktop.mjs")))


async def test_the_executor_of_smolagents_runs_an_agents_code_in_a_sandbox(world: World) -> None:
    python = await asyncio.to_thread(environment_of, "smolagents[e2b]==1.26.0", with_own=False)
    await answers(world, "smolagents", (str(python), str(EXAMPLES / "executor.py")))


async def answers(world: World, user: str, program: tuple[str, ...], **variables: str) -> None:
    """Run a program to its end with what the mesh says that clients need."""
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": await world.key(user.replace(".", "-")), **variables}
    process = await asyncio.create_subprocess_exec(
        *program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert (process.returncode, out.decode().splitlines()[-1:]) == (0, ["every call answered"]), err.decode()


SNIPPET = re.compile(r"^```(?:py|ts)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWS = re.compile(r"(?:print|console\.log)\(.*\) +(?:#|//) (?:outputs )?(.*)")


def snippets(page: Path) -> list[tuple[str, str]]:
    """Return the programs of a page that say what they print, and that."""
    found = [(match[1], SHOWS.search(match[1])) for match in SNIPPET.finditer(page.read_text())]
    return [(program, shows[1].strip()) for program, shows in found if shows is not None]


def python_pages(library: Path) -> list[Path]:
    """Return the pages that the clients' packages have of themselves."""
    return [next(library.glob(f"{name}-2*.dist-info")) / "METADATA" for name in ("e2b", "e2b_code_interpreter")]


async def shows(world: World, user: str, program: tuple[str, ...], line: str, **variables: str) -> None:
    """Run a snippet, and check what it prints."""
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": await world.key(user), **variables}
    process = await asyncio.create_subprocess_exec(*program, env=environment, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out.decode().strip()) == (0, line), program


async def test_the_snippets_of_the_packages_own_pages_print_what_they_say(
    world: World, library: Path, packages: Path
) -> None:
    python = [snippet for page in python_pages(library) for snippet in snippets(page)]
    for number, (program, line) in enumerate(python):
        await shows(world, f"python {number}", (sys.executable, "-c", program), line, PYTHONPATH=str(library))
    modules = packages / "node_modules"
    node = [snippet for name in ("e2b", "@e2b/code-interpreter") for snippet in snippets(modules / name / "README.md")]
    for number, (program, line) in enumerate(node):
        file = packages / f"snippet{number}.mjs"
        file.write_text(program)
        await shows(world, f"node {number}", ("node", str(file)), line)
    assert (len(python), len(node)) == (3, 3)


async def test_the_examples_of_the_packages_reference_run_as_they_are(
    world: World, library: Path, tmp_path: Path
) -> None:
    programs = examples(library)
    for number, program in enumerate(programs):
        (tmp_path / f"{number}.py").write_text(program)
    files = [str(tmp_path / f"{number}.py") for number in range(len(programs))]
    await answers(world, "reference", (sys.executable, "-c", RUN, *files), PYTHONPATH=str(library))
    assert len(programs) == 13, programs


ROUNDS = int(os.environ.get("SANDMESH_TEST_E2B_KILLED", "3"))
"""How many clients are killed, each with six sandboxes."""

KILLED = """
import asyncio, sys
from e2b import AsyncSandbox

async def make():
    box = await AsyncSandbox.create(timeout=120)
    await box.commands.run("sleep 1000", background=True, timeout=0)
    await box.files.write("mine", "x" * 1000)
    await box.set_timeout(4)
    print(box.sandbox_id, flush=True)

async def main():
    await asyncio.gather(*(make() for _ in range(int(sys.argv[1]))))
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_clients_that_are_killed_leave_nothing_once_their_time_is_over(world: World, library: Path) -> None:
    key = await world.key("killed")
    environment = {**os.environ, **world.mesh.e2b, "E2B_API_KEY": key, "PYTHONPATH": str(library)}
    for _ in range(ROUNDS):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, "6", env=environment, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        for _ in range(6):
            assert await asyncio.wait_for(process.stdout.readline(), 60)
        process.kill()
        await process.wait()

    async def are_gone() -> bool:
        return bool((await world.send("GET", "/v2/sandboxes", {"X-API-KEY": key}))[1] == [])

    # What a sandbox leaves on the machine is looked for after the mesh's end.
    await until(are_gone, 90)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install Node's clients, as their lock file says, beside a copy of the programs."""
    folder = tmp_path_factory.mktemp("e2b") / "node"
    shutil.copytree(EXAMPLES / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    install(folder, "npm")
    return folder


@pytest.mark.parametrize("name", ["sandbox.mjs", "interpreter.mjs", "templates.mjs"])
async def test_an_unmodified_client_of_node_needs_environment_variables_alone(
    world: World, packages: Path, name: str
) -> None:
    await answers(world, name, ("node", str(packages / name)))


@pytest.mark.needs("names")
async def test_nodes_clients_of_half_a_year_ago_reach_sandboxes_by_names(named: World, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    shutil.copytree(PREVIOUS_NODE, folder)
    install(folder, "npm")
    for name in ("sandbox.mjs", "interpreter.mjs"):
        shutil.copy(EXAMPLES / "node" / name, folder)
        await answers(named, f"previous-{name}", ("node", str(folder / name)))


@pytest.mark.needs("names")
async def test_a_client_that_does_not_trust_a_domains_certificate_is_told_by_the_page_what_to_set(
    named: World, library: Path
) -> None:
    trusted = {"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"}
    environment = {name: value for name, value in (os.environ | named.mesh.e2b).items() if name not in trusted}
    environment |= {"E2B_API_KEY": await named.key("untrusting"), "PYTHONPATH": str(library)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from e2b import Sandbox; Sandbox.create()"), env=environment, stderr=subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, b"invalid peer certificate: UnknownIssuer" in err) == (1, True), err.decode()
    page = (EXAMPLES.parents[1] / "docs" / "e2b.md").read_text()
    assert all(f"`{name}`" in page for name in ("E2B_DOMAIN", "invalid peer certificate: UnknownIssuer", *trusted))
    assert trusted <= named.mesh.e2b.keys()

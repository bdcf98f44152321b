"""Coding agents as they are published, in sandboxes, on a copy of a repository: the model is a script."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from sandmeshd.cli.coding_agents.agents import AGENTS
from sandmeshd.cli.coding_agents.records import directory_locked, works_folder
from tests.mesh.commands import Commands, Done, running_mesh
from tests.mesh.integrations.model_apis import ANTHROPIC, DONE, GEMINI, OPENAI, ModelApis, model_apis
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

KEYS = {"claude": "sk-ant-real-5f1c", "codex": "sk-openai-real-77aa", "gemini": "AIza-real-0b9d"}
HOSTS = {"claude": ANTHROPIC, "codex": OPENAI, "gemini": GEMINI}
OF_CLAUDE = {"aider": "claude", "opencode": "claude"}
# It fixes the bug, runs the test, and looks for what should not be there.
FIX = (
    "sed -i 's/a - b/a + b/' sums.py && python3 check.py && env > seen.txt; ls -a >> seen.txt; "
    "curl -sS -m 20 https://example.org 2>> seen.txt; true"
)
# aider has no tool for commands: it edits files itself, and runs the test that it is given.
OPTIONS = {"codex": ("--", "--model", "gpt-5"), "aider": ("--", "--auto-test", "--test-cmd", FIX)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def apis(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelApis]:
    """Serve the APIs of models."""
    async with model_apis(FIX, tmp_path_factory.mktemp("apis")) as serving:
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def commands(apis: ModelApis) -> AsyncGenerator[Commands]:
    """Run a mesh that reaches them."""
    variables = {AGENTS[name].apis[0].key: key for name, key in KEYS.items()}
    mesh = running_mesh(**apis.settings)
    up = await asyncio.to_thread(mesh.__enter__)
    try:
        yield Commands(up.settings, {**up.environment, **variables})
    finally:
        await asyncio.to_thread(mesh.__exit__, None, None, None)


def make_repository(folder: Path) -> Path:
    """Make a repository with a bug, a change that is not committed, and what git ignores."""
    folder.mkdir()
    (folder / "sums.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "check.py").write_text("from sums import add\n\nassert add(2, 3) == 5\n")
    (folder / ".gitignore").write_text(".env\n")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        subprocess.run([*git, *arguments], check=True)
    subprocess.run([*git, "remote", "add", "origin", "https://user:token@example.org/x.git"], check=True)
    (folder / "notes.txt").write_text("not committed\n")
    (folder / ".env").write_text("PASSWORD=1\n")
    return folder


@contextmanager
def named(commands: Commands, *suffixes: str) -> Generator[str]:
    """Give a name for work that is removed afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    try:
        yield name
    finally:
        for suffix in suffixes or ("",):
            commands.run("agent", "rm", "--force", f"{name}{suffix}", ok=False)


async def run(commands: Commands, *arguments: str, ok: bool = True) -> Done:
    """Run `sandmesh agent`."""
    return await asyncio.to_thread(lambda: commands.run("agent", *arguments, ok=ok))


@pytest.mark.parametrize("agent", [*KEYS, *OF_CLAUDE])
async def test_an_agent_fixes_a_bug_in_its_copy_and_the_key_stays_outside(
    commands: Commands, apis: ModelApis, tmp_path: Path, agent: str
) -> None:
    folder = make_repository(tmp_path / "project")
    key = OF_CLAUDE.get(agent, agent)
    if agent == "aider":
        # Its environment takes longer than a command of these tests may.
        built = await asyncio.to_thread(commands.start, "build", agent)
        assert (await asyncio.to_thread(built.communicate), built.returncode)[1] == 0
    with named(commands) as name:
        done = await run(commands, agent, str(folder), "--name", name, "-p", "Fix sums.py", *OPTIONS.get(agent, ()))
        assert DONE in done.out
        assert "a - b" in (folder / "sums.py").read_text()  # a copy
        assert apis.keys[HOSTS[key]] == {KEYS[key]}
        shown = (await run(commands, "diff", name)).out
        assert "-    return a - b\n+    return a + b\n" in shown
        assert KEYS[key] not in shown
        assert "sandmesh_secret_" in shown
        assert "403" in shown  # of example.org
        for absent in ("PASSWORD", "+.env", "token@", "b/.aider"):
            assert absent not in shown
        await run(commands, "apply", name)
        assert "return a + b" in (folder / "sums.py").read_text()
        assert (folder / "notes.txt").read_text() == "not committed\n"
        assert (await run(commands, "diff", name)).out == ""


async def test_work_goes_on_by_name_and_never_overwrites_what_was_changed_meanwhile(
    commands: Commands, tmp_path: Path
) -> None:
    folder = make_repository(tmp_path / "project")
    with named(commands) as name:
        begin = (str(folder), "--name", name, "-p", "Fix sums.py")
        first = await asyncio.to_thread(commands.start, "agent", "claude", *begin)
        # The work is this command's as soon as it has its lock.
        await until(lambda: asyncio.to_thread((works_folder() / name / "record.json").exists), 60)
        refused = await run(commands, "claude", *begin, ok=False)
        assert refused.code == 1
        assert f"another command is at the work {name!r}" in refused.err
        await asyncio.to_thread(first.communicate)
        sandbox = json.loads((works_folder() / name / "record.json").read_text())["sandbox_id"]
        # Its conversation goes on in the same sandbox, so that the model has nothing more to fix.
        again = await run(commands, "claude", *begin, "--no-apply")
        assert json.loads((works_folder() / name / "record.json").read_text())["sandbox_id"] == sandbox
        assert "+    return a + b" in again.out
        (folder / "sums.py").write_text("def add(a, b):\n    return sum((a, b))\n")
        conflict = await run(commands, "apply", name, ok=False)
        assert "nothing is applied, since these were changed in the folder, too: sums.py" in conflict.err
        assert (folder / "sums.py").read_text() == "def add(a, b):\n    return sum((a, b))\n"
        assert not (folder / "seen.txt").exists()
        kept = await run(commands, "rm", name, ok=False)
        assert "has changes that were not applied" in kept.err
        other = await run(commands, "codex", *begin, ok=False)
        assert f"{name!r} is the work of claude on {folder}" in other.err


async def test_a_tree_carries_out_one_task_in_forks_side_by_side(commands: Commands, tmp_path: Path) -> None:
    folder = make_repository(tmp_path / "project")
    with named(commands, "-1", "-2") as name:
        begin = (str(folder), "--name", name, "-p", "Fix sums.py", "--tree", "2", "--", "--model", "gpt-5")
        done = await run(commands, "codex", *begin)
        assert done.out.count("+    return a + b") == 2
        rows = [line.split() for line in done.out.splitlines() if line.startswith(f"{name}-")]
        assert [(row[0], row[1]) for row in rows] == [(f"{name}-1", "0"), (f"{name}-2", "0")]
        assert DONE in (works_folder() / f"{name}-2" / "output.txt").read_text()
        await run(commands, "apply", f"{name}-2")
        assert "a + b" in (folder / "sums.py").read_text()
        assert (await asyncio.to_thread(commands.run, "ls", "-o", "id")).out.count("sb_") <= 1 + len(KEYS)


async def test_a_tree_that_is_interrupted_keeps_what_its_agents_changed(
    commands: Commands, apis: ModelApis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_repository(tmp_path / "project")
    monkeypatch.setattr(apis, "command", "sed -i 's/a - b/a + b/' sums.py; sleep 600")
    with named(commands, "-1", "-2") as name:
        begin = (str(folder), "--name", name, "-p", "Fix sums.py", "--tree", "2")
        running = await asyncio.to_thread(commands.start, "agent", "claude", *begin)

        async def is_fixed(number: int) -> bool:
            record = works_folder() / f"{name}-{number}" / "record.json"
            if not await asyncio.to_thread(record.exists):
                return False
            sandbox = json.loads(await asyncio.to_thread(record.read_text))["sandbox_id"]
            look = ("exec", sandbox, "--", "grep", "-q", "a + b", "sums.py")
            return (await asyncio.to_thread(lambda: commands.run(*look, ok=False))).code == 0

        for number in (1, 2):
            await until(partial(is_fixed, number), 240)
        running.send_signal(signal.SIGINT)
        await asyncio.to_thread(running.communicate)
        assert running.returncode == 128 + signal.SIGINT
        for number in (1, 2):
            assert "+    return a + b" in (await run(commands, "diff", f"{name}-{number}")).out


async def test_what_an_agent_cannot_be_started_with_is_one_line_and_changes_nothing(
    commands: Commands, tmp_path: Path
) -> None:
    folder = make_repository(tmp_path / "project")

    def refused(*arguments: str, **environment: str) -> str:
        done = commands.run("agent", *arguments, ok=False, **environment)
        assert done.code != 0
        assert len(done.err.strip().splitlines()) == 1, done.err
        return done.err

    with named(commands) as name:
        begin = (str(folder), "--name", name, "-p", "x")
        assert "the key is put only into requests over TLS" in await asyncio.to_thread(
            lambda: refused("claude", *begin, ANTHROPIC_BASE_URL="http://127.0.0.1:1")
        )
        assert "there is no secret 'ANTHROPIC_API_KEY'" in await asyncio.to_thread(
            lambda: refused("claude", *begin, ANTHROPIC_API_KEY="")
        )
        assert "is not a folder" in await asyncio.to_thread(refused, "claude", str(folder / "absent"), "-p", "x")
        assert "--tree needs a task" in await asyncio.to_thread(refused, "claude", str(folder), "--tree", "2")
        assert "no work of an agent is named" in await asyncio.to_thread(refused, "diff", name)
        assert "SANDMESH_WORKSPACE_ROOTS" in await asyncio.to_thread(
            lambda: commands.run("agent", "claude", *begin, "--mount", ok=False).err
        )
    assert not (works_folder() / name).exists()
    assert (folder / "sums.py").read_text().endswith("a - b\n")


async def test_a_key_goes_to_no_host_but_those_it_was_stored_for(
    commands: Commands, apis: ModelApis, tmp_path: Path
) -> None:
    folder = make_repository(tmp_path / "project")
    stored = ("secret", "set", "ANTHROPIC_API_KEY", "--host", "other.example")
    await asyncio.to_thread(lambda: commands.run(*stored, stdin="sk-ant-of-another-host"))
    try:
        with named(commands) as name:
            begin = ("claude", str(folder), "--name", name, "-p", "Fix sums.py")
            done = await asyncio.to_thread(lambda: commands.run("agent", *begin, ok=False, ANTHROPIC_API_KEY=""))
    finally:
        await asyncio.to_thread(commands.run, "secret", "rm", "ANTHROPIC_API_KEY")
    assert done.code != 0, done.out
    assert len(done.err.strip().splitlines()) == 1, done.err
    assert "other.example" in done.err
    assert not any("another-host" in key for keys in apis.keys.values() for key in keys)


async def test_a_second_agent_on_a_folder_that_one_changes_in_place_is_refused(
    commands: Commands, tmp_path: Path
) -> None:
    folder = make_repository(tmp_path / "project")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with named(commands) as name, directory_locked(str(folder)):
        refused = await run(commands, "claude", str(folder), "--name", name, "-p", "x", "--mount", ok=False)
    assert refused.code != 0
    assert refused.err.count("\n") == 1
    assert f"another agent changes {folder} in place: leave out --mount: each agent then has a copy" in refused.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

"""The workspace's history through a whole mesh, with real git inside a real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from sandmesh import BaseSandbox, BaseSandboxAsync, FilesystemSandboxAsync, ToolResult
from sandmeshd.mesh import Mesh

pytestmark = [pytest.mark.needs("user namespaces"), pytest.mark.needs("git")]


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


async def shell(box: BaseSandboxAsync, command: str) -> str:
    """Run what must go well."""
    result = await box.run_shell_command(command)
    assert not result.is_error, result.text
    return result.stdout


def structured(result: ToolResult) -> dict[str, Any]:
    """Return the structured form of a success."""
    assert not result.is_error, result.text
    structured: dict[str, Any] = result["structuredContent"]
    return structured


async def test_changes_are_committed_and_diffs_go_from_the_old_to_the_new(box: BaseSandboxAsync) -> None:
    await shell(box, "printf 'one\\ntwo\\n' > 'a b.txt' && printf '\\377\\0' > binary")
    first = structured(await box.commit_changes("the first"))
    assert first["changed"]
    assert len(first["commit"]) == 40
    await shell(box, "printf 'one\\n2\\n' > 'a b.txt' && mkdir -p new && echo hi > new/ü.txt && rm binary")
    before = await shell(box, "git status --porcelain")
    uncommitted = structured(await box.generate_diff())["diffs"]
    assert sorted(uncommitted) == ["a b.txt", "binary", "new/ü.txt"]
    assert "-two\n+2\n" in uncommitted["a b.txt"]
    assert "new file" in uncommitted["new/ü.txt"]
    assert "+hi\n" in uncommitted["new/ü.txt"]
    assert await shell(box, "git status --porcelain") == before
    second = structured(await box.commit_changes("the second"))
    forwards = await box.generate_diff(first["commit"], second["commit"])
    assert structured(forwards)["diffs"] == uncommitted
    assert forwards.text == "".join(uncommitted[name] for name in sorted(uncommitted))
    assert "-2\n+two\n" in structured(await box.generate_diff(commit_a="HEAD", commit_b="HEAD~1"))["diffs"]["a b.txt"]
    assert structured(await box.generate_diff("HEAD~1"))["diffs"] == uncommitted
    logs = structured(await box.git_logs())["logs"]
    assert [entry["message"] for entry in logs] == ["the second", "the first"]
    assert [entry["commit"] for entry in logs] == [second["commit"], first["commit"]]
    assert logs[0]["diff"] == uncommitted
    assert "+two\n" in logs[1]["diff"]["a b.txt"]
    assert len(structured(await box.git_logs(limit=1))["logs"]) == 1


async def test_where_nothing_changed_no_commit_is_made(box: BaseSandboxAsync) -> None:
    assert structured(await box.git_logs()) == {"logs": []}
    assert (await box.generate_diff()).is_error
    assert structured(await box.commit_changes("nothing"))["commit"] is None
    assert structured(await box.generate_diff()) == {"diffs": {}}
    await shell(box, "echo x > x; echo y > ignored; echo ignored > .gitignore")
    assert sorted(structured(await box.generate_diff())["diffs"]) == [".gitignore", "x"]
    made = structured(await box.commit_changes("# a sign\n\nbody"))
    again = structured(await box.commit_changes("again"))
    assert (again["commit"], again["changed"]) == (made["commit"], False)
    assert structured(await box.generate_diff())["diffs"] == {}
    assert [entry["message"] for entry in structured(await box.git_logs())["logs"]] == ["# a sign\n\nbody"]


async def test_the_users_own_name_is_the_author(mesh: Mesh) -> None:
    async with asyncio.timeout(60), FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        await shell(box, "git config --global user.name Ada && git config --global user.email ada@example.com")
        await box.write_file("x", "1")
        structured(await box.commit_changes("mine"))
        assert structured(await box.git_logs())["logs"][0]["author"] == "Ada"


async def test_commits_at_once_wait_for_each_other(box: BaseSandboxAsync) -> None:
    await shell(box, "for n in 1 2 3 4 5 6 7 8; do echo $n > $n; done")
    results = await asyncio.gather(*(box.commit_changes(f"commit {number}") for number in range(8)))
    assert sum(structured(result)["changed"] for result in results) == 1


BAD_STATES = {
    "echo garbage > .git/HEAD": "not a git repository",
    "touch .git/index.lock": "index.lock",
    "head -c 64 /dev/zero > .git/index": "index",
    "rm -rf .git/objects": "not a git repository",
    "printf '#!/bin/sh\\necho no such; exit 1\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*": "no such",
}


async def test_a_repository_in_a_bad_state_is_left_as_it_is_and_named(box: BaseSandboxAsync) -> None:
    for state, said in BAD_STATES.items():
        await shell(box, "rm -rf .git; echo x > x")
        structured(await box.commit_changes("good"))
        await shell(box, f"mkdir -p .git/hooks; echo changed > x; {state}; cp -r .git /tmp/before")
        refused = await box.commit_changes("bad")
        assert refused.is_error, state
        assert said in refused.text, refused.text
        await shell(
            box, "grep -q changed x; diff -rq --exclude=objects --exclude=index .git /tmp/before; rm -r /tmp/before"
        )


async def test_a_merge_with_conflicts_is_not_committed(box: BaseSandboxAsync) -> None:
    await shell(box, "echo x > x")
    structured(await box.commit_changes("base"))
    name = "-c user.name=a -c user.email=a@b"
    await shell(box, f"git checkout -qb other && echo o > x && git {name} commit -qam o && git checkout -q main")
    await shell(box, f"echo m > x && git {name} commit -qam m; ! git {name} merge other")
    refused = await box.commit_changes("conflict")
    assert refused.is_error
    assert "left conflicts in x" in refused.text
    assert "<<<<<<<" in await shell(box, "cat x")


async def test_an_end_that_is_no_commit_is_named(box: BaseSandboxAsync) -> None:
    await shell(box, "echo x > x")
    structured(await box.commit_changes("one"))
    for ends in (("nowhere", None), ("--output=x", "HEAD"), (None, "HEAD")):
        refused = await box.generate_diff(*ends)
        assert refused.is_error, ends
        assert "There is no commit" in refused.text or "commit_a" in refused.text
    assert await shell(box, "ls") == "x\n"


async def test_a_diff_too_large_to_show_says_so_and_the_sandbox_goes_on(box: BaseSandboxAsync) -> None:
    await shell(box, "git init -q && yes 0123456789abcdef | head -c 40000000 > large")
    refused = await box.generate_diff()
    assert refused.is_error
    assert "larger than 32 MiB" in refused.text
    assert structured(await box.commit_changes("large"))["changed"]


async def test_a_program_without_an_event_loop_has_the_same_tools(mesh: Mesh) -> None:
    def use() -> None:
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            box.run_shell_command("echo x > x")
            commit = structured(box.commit_changes(message="one"))["commit"]
            assert structured(box.git_logs())["logs"][0]["commit"] == commit
            assert structured(box.generate_diff(commit_a=commit, commit_b=commit)) == {"diffs": {}}

    await asyncio.to_thread(use)

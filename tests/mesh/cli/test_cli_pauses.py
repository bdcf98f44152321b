"""Commands that pause, resume, mark and rewind, on one mesh for all tests of this file."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from sandmesh import BaseSandbox
from tests.mesh.commands import Commands, running_mesh


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


@pytest.fixture
def box(sandmesh: Commands) -> Generator[BaseSandbox]:
    """Hold a sandbox."""
    address = f"unix://{sandmesh.settings.paths.gateway}"
    with BaseSandbox(base_url=address) as opened:
        yield opened


def test_a_sandbox_is_paused_and_resumed_by_command(sandmesh: Commands, box: BaseSandbox) -> None:
    heading, row = sandmesh.run("pause", box.sandbox_id).out.splitlines()
    assert heading.split() == ["SANDBOX", "TEMPLATE", "STATE"]
    assert row.split() == [box.sandbox_id, "base", "PAUSED"]
    assert sandmesh.run("ls").out.splitlines()[1].split()[2] == "PAUSED"
    [again] = sandmesh.run("pause", "-o", "json", box.sandbox_id).json
    assert again["state"] == "SANDBOX_STATE_PAUSED"
    assert sandmesh.run("resume", box.sandbox_id).out.splitlines()[1].split()[2] == "READY"
    assert box.run_ipython_cell("6 * 7").text == "42"


def test_what_cannot_be_paused_is_named_and_the_others_are_paused(sandmesh: Commands, box: BaseSandbox) -> None:
    done = sandmesh.run("pause", "sb_none", box.sandbox_id, "-o", "json", ok=False)
    assert done.code == 3
    assert "SANDBOX_NOT_FOUND" in done.err
    assert [one["sandbox_id"] for one in done.json] == [box.sandbox_id]
    assert sandmesh.run("resume", "sb_none", ok=False).out == ""


def test_a_kernel_returns_to_a_mark_by_command_until_the_mark_is_dropped(sandmesh: Commands, box: BaseSandbox) -> None:
    box.run_ipython_cell("import socket; kept = socket.socketpair(); x = 1")
    marked = sandmesh.run("mark", box.sandbox_id)
    mark = marked.out.strip()
    assert "not held: unix socket" in marked.err
    box.run_ipython_cell("x = 2")
    assert sandmesh.run("rewind", box.sandbox_id, mark).out == ""
    assert box.run_ipython_cell("x").text == "1"
    dropped = sandmesh.run("mark", "--drop", mark, "-o", "json", box.sandbox_id).json
    assert dropped == {"mark_id": mark, "kernel_id": "default", "not_copied": []}
    gone = sandmesh.run("rewind", box.sandbox_id, mark, ok=False)
    assert gone.code != 0
    assert "has no mark" in gone.err


def test_files_and_kernels_return_to_a_mark_of_all_by_command(sandmesh: Commands, box: BaseSandbox) -> None:
    box.run_ipython_cell("y = 1")
    box.fs.write("marked.txt", "first")
    made = sandmesh.run("mark", "--all", "-o", "json", box.sandbox_id).json
    assert made["kernels"] == ["default"]
    box.run_ipython_cell("y = 2")
    box.fs.write("marked.txt", "second")
    assert "leave --kernel out" in sandmesh.run("mark", "--all", "--kernel", "x", box.sandbox_id, ok=False).err
    refused = sandmesh.run("rewind", "--kernel", "x", box.sandbox_id, made["mark_id"], ok=False)
    assert "leave --kernel out" in refused.err
    assert sandmesh.run("rewind", box.sandbox_id, made["mark_id"]).out == ""
    assert (box.run_ipython_cell("y").text, box.fs.read("marked.txt")) == ("1", "first")
    assert sandmesh.run("mark", "--drop", made["mark_id"], box.sandbox_id).out.strip() == made["mark_id"]
    assert "no mark" in sandmesh.run("rewind", box.sandbox_id, made["mark_id"], ok=False).err


def test_marks_of_kernels_that_do_not_exist_are_refused(sandmesh: Commands, box: BaseSandbox) -> None:
    done = sandmesh.run("mark", "--kernel", "other", box.sandbox_id, ok=False)
    assert done.code != 0
    assert "there are default" in done.err


def test_a_sandbox_is_forked_by_command_with_its_files_and_variables(sandmesh: Commands, box: BaseSandbox) -> None:
    box.run_ipython_cell("x = 41; import socket; kept = socket.socketpair()")
    box.fs.write("note.txt", "kept")
    made = sandmesh.run("fork", box.sandbox_id, "--count", "2", "--ttl", "600")
    assert "not copied: kernel default: unix socket" in made.err
    for sandbox_id in made.out.split():
        with BaseSandbox(sandbox_id, base_url=f"unix://{sandmesh.settings.paths.gateway}") as fork:
            assert fork.run_ipython_cell("x + 1, open('note.txt').read()").text == "(42, 'kept')"
    [files] = sandmesh.run("fork", box.sandbox_id, "--no-kernels", "-o", "json").json["sandboxes"]
    assert sandmesh.run("kill", *made.out.split(), files).code == 0
    assert "SANDBOX_NOT_FOUND" in sandmesh.run("fork", "sb_none", ok=False).err


def test_a_command_says_what_is_done_with_an_idle_sandbox(sandmesh: Commands) -> None:
    made = sandmesh.run("run", "--no-rm", "--idle-timeout", "600", "--on-idle", "pause", "--", "true")
    [sandbox_id] = [word for word in made.err.split() if word.startswith("sb_")][:1]
    record = sandmesh.run("inspect", "-o", "json", sandbox_id).json
    assert (record["on_idle"], record["idle_timeout"]) == ("IDLE_ACTION_PAUSE", "600s")
    assert "needs an idle_timeout" in sandmesh.run("run", "--no-rm", "--on-idle", "pause", "true", ok=False).err
    sandmesh.run("kill", sandbox_id)


def test_changes_are_tried_in_an_overlay_and_committed_by_command(sandmesh: Commands, box: BaseSandbox) -> None:
    box.fs.write("file", "base")
    with box.overlay() as branch:
        branch.run_ipython_cell("open('file', 'w').write('branch')")
        assert [(change.change, change.path) for change in branch.diff()] == [("changed", "file")]
        branch.commit()
    assert box.fs.read("file") == "branch"
    made = sandmesh.run("overlay", "create", box.sandbox_id).out.strip()
    sandmesh.run("exec", made, "--", "sh", "-c", "mkdir by; echo x > by/command; rm file")
    assert sandmesh.run("overlay", "diff", made).out.splitlines() == ["+ by/", "+ by/command", "- file"]
    assert box.fs.read("file") == "branch"
    committed = sandmesh.run("overlay", "commit", made, "-o", "json").json
    assert [change["path"] for change in committed] == ["by", "by/command", "file"]
    assert [entry.path for entry in box.fs.list(depth=2)] == ["by", "by/command"]
    sandmesh.run("overlay", "discard", made)
    refused = sandmesh.run("overlay", "diff", made, ok=False)
    assert refused.code != 0
    assert "Error" in refused.err or made in refused.err
    assert "not an overlay" in sandmesh.run("overlay", "commit", box.sandbox_id, ok=False).err

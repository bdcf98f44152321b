"""Snapshots, as the SDK and the commands have them, on one mesh for all tests of this file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from datetime import timedelta

import pytest

from sandmesh import BaseSandbox, FilesystemSandbox
from sandmesh.errors import InvalidArgument, SnapshotDamaged, SnapshotNotFound
from tests.mesh.commands import Commands, running_mesh
from tests.processes import files_below


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


@pytest.fixture(scope="module")
def address(sandmesh: Commands) -> str:
    """Give where it listens."""
    return f"unix://{sandmesh.settings.paths.gateway}"


def test_a_box_begins_with_what_another_was(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address) as box:
        box.run_ipython_cell("open('one', 'w').write('first')")
        box.run_shell_command("mkdir -p ~/.venv && echo kept > ~/.venv/mark && echo 'x = 7' > module.py")
        taken = box.snapshot()
        box.run_shell_command("rm one; touch later")
        assert box.list_snapshots() == [taken]
    with BaseSandbox(base_url=address, snapshot=taken) as other:
        assert other.run_shell_command("ls; cat one ~/.venv/mark").text.split()[:3] == ["module.py", "one", "firstkept"]
        assert other.run_ipython_cell("import module; module.x").text == "7"
        with pytest.raises(InvalidArgument, match="fits no other"):
            FilesystemSandbox(base_url=address, snapshot=taken.snapshot_id).start()
        other.delete_snapshot(taken)
        with pytest.raises(SnapshotNotFound):
            other.delete_snapshot(taken)
        assert other.run_shell_command("cat one").text.startswith("first")
    with pytest.raises(SnapshotNotFound):
        BaseSandbox(base_url=address, snapshot=taken).start()


def test_a_damaged_snapshot_starts_nothing(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address) as box:
        box.fs.write("file", b"content" * 1000)
        taken = box.snapshot()
        [files] = files_below(sandmesh.settings.paths.state, "files.tar")
        files.write_bytes(files.read_bytes().replace(b"content", b"contend", 1))
        with pytest.raises(SnapshotDamaged, match=taken.snapshot_id):
            BaseSandbox(base_url=address, snapshot=taken).start()
        box.delete_snapshot(taken)
    assert not files_below(sandmesh.settings.paths.state, "files.tar")


def test_snapshots_are_taken_listed_and_removed_by_command(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address) as box:
        box.fs.write("file", b"here\n")
        made = sandmesh.run("snapshot", "create", box.sandbox_id).out.strip()
        [listed] = sandmesh.run("snapshot", "ls", "-o", "json").json
        assert (listed["snapshot_id"], listed["sandbox_id"]) == (made, box.sandbox_id)
        heading, row = sandmesh.run("snapshot", "ls").out.splitlines()
        assert heading.split()[:2] == ["SNAPSHOT", "TYPE"]
        assert row.split()[:2] == [made, "base"]
    assert sandmesh.run("run", "--snapshot", made, "--", "cat", "file").out == "here\n"
    assert sandmesh.run("snapshot", "rm", "-o", "json", made).json == {"snapshot_ids": [made]}
    assert sandmesh.run("snapshot", "ls", "-o", "id").out == ""
    assert "no snapshot" in sandmesh.run("snapshot", "rm", made, ok=False).err


_MAKES_AN_OVERLAY = """
import sys
from sandmesh import BaseSandbox

with BaseSandbox(sys.argv[1], base_url=sys.argv[2]) as box, box.overlay():
    input()
"""


def test_what_a_killed_client_would_have_deleted_deletes_itself(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address) as box:
        box.fs.write("file", bytes(10_000_000))
        command = [sys.executable, "-c", _MAKES_AN_OVERLAY, box.sandbox_id, address]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as client:
            while not (left := box.list_snapshots()):
                assert client.poll() is None
            client.kill()
        [snapshot] = left
        assert snapshot.expires is not None
        assert timedelta() < snapshot.expires - snapshot.created <= timedelta(hours=1, minutes=1)
        box.delete_snapshot(snapshot)


def test_a_snapshot_with_an_end_deletes_itself(sandmesh: Commands, address: str) -> None:
    with BaseSandbox(base_url=address) as box:
        box.fs.write("file", b"content")
        kept = box.snapshot(ttl=3600)
        taken = sandmesh.run("snapshot", "create", "--ttl", "0.3", box.sandbox_id).out.strip()
        while len(files_below(sandmesh.settings.paths.state, "files.tar")) > 1:
            pass
        assert box.list_snapshots() == [kept]
        with pytest.raises(SnapshotNotFound):
            BaseSandbox(base_url=address, snapshot=taken).start()
        for refused in (0, 604_801):
            with pytest.raises(InvalidArgument, match="at most 7 days"):
                box.snapshot(ttl=refused)
        box.delete_snapshot(kept)

"""Overlays of a sandbox's files: what they change, what is committed, and what is in conflict."""

from __future__ import annotations

import pytest

from sandmesh import BaseSandboxAsync, errors
from sandmesh.mesh import MeshAsync
from sandmesh.results import FileDifference
from sandmeshd.mesh import Mesh

pytestmark = pytest.mark.needs("user namespaces")

PREPARE = """
mkdir -p kept gone/inner locked turns
echo kept > kept/file; echo one > changed; echo old > gone/inner/file; echo x > turns/inside; ln -s kept link
echo secret > locked/file; chmod 0500 locked; printf old > "$(printf 'b\\351')"
"""
CHANGE = """
echo two > changed; rm -r gone turns; echo now a file > turns; mkdir -p new/deep; echo new > new/deep/file
chmod 755 new/deep/file; ln -sfn changed link; chmod 0700 locked; echo more > locked/other; chmod 0500 locked
printf new > "$(printf 'b\\351')"
mkfifo new/pipe; touch kept/file
"""


def signs(changes: list[FileDifference]) -> set[str]:
    """Return changes in short."""
    return {f"{change.change} {change.path}" for change in changes}


async def listing(box: BaseSandboxAsync) -> str:
    """Return every path of the workspace with its type, mode, target and content."""
    command = "find . -not -type p -printf '%p %y %m %l\\n' | LC_ALL=C sort; cat changed turns new/deep/file b*"
    return (await box.run_shell_command(f"({command}) 2>&1")).text


async def test_an_overlays_changes_reach_its_sandbox_when_they_are_committed_and_not_before(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with MeshAsync(address) as client, BaseSandboxAsync(base_url=address) as box:
        assert not (await box.run_shell_command(PREPARE)).is_error
        before = await listing(box)
        async with box.overlay() as branch:
            assert branch.sandbox_id != box.sandbox_id
            assert not await branch.diff()
            await branch.run_shell_command(CHANGE)
            assert signs(await branch.diff()) == {
                "changed changed", "removed gone", "removed gone/inner", "removed gone/inner/file", "changed turns",
                "removed turns/inside", "added new", "added new/deep", "added new/deep/file", "changed link",
                "added locked/other", "changed b\udce9",
            }  # fmt: skip
            assert await listing(box) == before
            changed = await listing(branch)
            assert len(await branch.commit()) == 12
            assert await listing(box) == changed
            assert not await branch.diff()
            await branch.fs.write("changed", "three")
            await branch.commit()
            assert await box.fs.read("changed") == "three"
            await branch.fs.write("changed", "not committed")
        assert await box.fs.read("changed") == "three"
        assert not [name for name in (await box.run_shell_command("ls -A")).text.split() if "sandmesh-" in name]
        assert not (await client.snapshots.list()).snapshots
        assert [one.sandbox_id for one in await client.sandboxes.list() if one.in_use] == [box.sandbox_id]


async def test_what_both_changed_is_a_conflict_and_nothing_is_committed(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_shell_command("mkdir d e; echo 1 > a; echo 1 > b; echo 1 > d/inside; echo 1 > e/inside")
        async with box.overlay() as branch:
            await branch.run_shell_command("echo 2 > a; echo 2 > b; echo 2 > c; rm -r d e")
            await box.run_shell_command("echo 3 > b; echo 3 > d/late; rm -r e")
            with pytest.raises(errors.WrongState, match="in 4 of the same places") as conflict:
                await branch.commit()
            assert set(conflict.value.facts["paths"].split("\n")) == {"b", "d", "e", "e/inside"}
            found = await box.run_shell_command("cat a b d/inside d/late; ls")
            assert found.text.split() == ["1", "3", "1", "3", "a", "b", "d"]
            assert len(await branch.commit(force=True)) == 7
            found = await box.run_shell_command("cat a b c; ls")
            assert found.text.split() == ["2", "2", "2", "a", "b", "c"]


async def test_an_overlay_of_nothing_is_refused(mesh: Mesh) -> None:
    address = mesh.addresses[0]
    async with BaseSandboxAsync(base_url=address) as box:
        for act in (box.diff, box.commit, box.discard):
            with pytest.raises(errors.WrongState, match="not an overlay"):
                await act()
        branch = await box.overlay().start()
        await branch.fs.write("file", "late")
    with pytest.raises((errors.SandboxNotFound, errors.SandboxLost, errors.LeaseLost)):
        await branch.commit()
    assert await branch.fs.read("file") == "late"
    await branch.discard()
    with pytest.raises(errors.WrongState, match="closed"):
        await branch.diff()
    with pytest.raises(errors.WrongState, match="not started"):
        BaseSandboxAsync(base_url=address).overlay()

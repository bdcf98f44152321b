"""What comes back of an agent's copy: only files of the folder, all of them or none, and never over other changes."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from sandmesh.errors import InvalidArgument, SandmeshError, WrongState
from sandmeshd.cli.coding_agents.agents import AGENTS, ANTHROPIC
from sandmeshd.cli.coding_agents.changes import apply, compare, patch
from sandmeshd.cli.coding_agents.records import AgentWork
from sandmeshd.cli.coding_agents.work_tree import ignored, scan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder and an agent's copy of it, named `copy`, beside it."""
    for name in ("folder", "copy"):
        root = tmp_path / name
        (root / "sub").mkdir(parents=True)
        (root / "sub" / "a.py").write_text("one\ntwo\n")
        (root / "gone.txt").write_text("gone\n")
        (root / "run.sh").write_text("echo run\n")
    return tmp_path / "folder"


@pytest.fixture
def copy(folder: Path) -> Path:
    """Return the agent's copy."""
    return folder.with_name("copy")


def test_files_links_modes_and_removals_are_applied_as_the_patch_shows_them(folder: Path, copy: Path) -> None:
    base = scan(folder, [])
    (copy / "sub" / "a.py").write_text("one\n2")
    (copy / "sub" / "new").mkdir()
    (copy / "sub" / "new" / "data.bin").write_bytes(b"\0\1")
    (copy / "link").symlink_to("sub/a.py")
    (copy / "run.sh").chmod(0o755)
    (copy / "gone.txt").unlink()
    changes = compare(base, scan(copy, []))
    lines = list(patch(folder, copy, changes))
    assert "\\ No newline at end of file" in lines
    assert "Binary files a/sub/new/data.bin and b/sub/new/data.bin differ" in lines
    text = "".join(f"{line}\n" for line in lines if "data.bin" not in line)
    checked = subprocess.run(
        ["git", "apply", "--check", "--exclude=sub/new/*", "-"],  # noqa: S607 - of this machine
        cwd=folder,
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert apply(folder, copy, changes).links_left_out == ()
    assert scan(folder, []) == scan(copy, [])
    assert not list(folder.rglob(".sandmesh-*"))


def test_a_file_that_was_changed_here_too_keeps_everything_as_it_is(folder: Path, copy: Path) -> None:
    base = scan(folder, [])
    (copy / "sub" / "a.py").write_text("the agent's\n")
    (copy / "run.sh").write_text("the agent's\n")
    (folder / "run.sh").write_text("mine\n")
    before = scan(folder, [])
    with pytest.raises(WrongState, match=r"run\.sh"):
        apply(folder, copy, compare(base, scan(copy, [])))
    assert scan(folder, []) == before


def test_nothing_is_written_through_a_link_or_outside_of_the_folder(folder: Path, copy: Path) -> None:
    base = scan(folder, [])
    outside = folder.with_name("outside")
    outside.mkdir()
    (copy / "sub" / "a.py").unlink()
    (copy / "sub").rmdir()
    (copy / "sub").symlink_to(outside)
    (copy / "up").symlink_to("../outside")
    changes = compare(base, scan(copy, []))
    assert set(apply(folder, copy, changes).links_left_out) == {"sub", "up"}
    assert not (folder / "up").is_symlink()
    # Here a folder became a link meanwhile, and what is below it leads elsewhere.
    (copy / "sub").unlink()
    (copy / "sub").mkdir()
    (copy / "sub" / "key").write_text("a key")
    (folder / "sub").symlink_to(outside)
    with pytest.raises(WrongState, match="sub/key"):
        apply(folder, copy, compare(scan(folder, []), scan(copy, [])))
    assert list(outside.iterdir()) == []


def test_what_git_keeps_and_what_it_ignores_is_no_part_of_it(folder: Path) -> None:
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / ".git" / "hooks" / "pre-commit").write_text("rm -rf /\n")
    (folder / "sub" / ".git").write_text("gitdir: elsewhere\n")
    (folder / ".gitignore").write_text("*.log\n/build/\n# a comment\n")
    (folder / "sub" / ".gitignore").write_text("local\n!keep.log\n")
    for path in ("a.log", "sub/b.log", "sub/keep.log", "sub/local", "local", "build/out"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text("")
    found = scan(folder, ignored(folder))
    assert sorted(found) == [".gitignore", "gone.txt", "local", "run.sh", "sub/.gitignore", "sub/a.py", "sub/keep.log"]


def test_a_key_is_only_for_a_host_over_tls() -> None:
    assert ANTHROPIC.host({}) == "api.anthropic.com:443"
    assert ANTHROPIC.host({"ANTHROPIC_BASE_URL": "https://gateway.example:8443/x"}) == "gateway.example:8443"
    for url in ("http://gateway.example", "gateway.example", "https://"):
        with pytest.raises(InvalidArgument, match="ANTHROPIC_BASE_URL"):
            ANTHROPIC.host({"ANTHROPIC_BASE_URL": url})
    assert AGENTS["opencode"].api({"OPENAI_API_KEY": "x"}).key == "OPENAI_API_KEY"


def test_what_a_folder_was_before_each_run_in_place_is_kept_with_what_git_ignores(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDMESH_STATE_DIRECTORY", str(tmp_path / "state"))
    (folder / ".gitignore").write_text(".env\nbuilt/\n")
    (folder / ".env").write_text("PASSWORD=1\n")
    (folder / "built").mkdir()
    (folder / "built" / "large").write_text("made again by a command\n")
    (folder / "sub" / "a.py").write_text("not committed\n")
    work = AgentWork("mine", "claude", str(folder), (*ignored(folder), "built/"), mounted=True).save()
    first = work.keep_tree(folder, ("built/",))
    # What an agent may do in place, before it is started a second time.
    (folder / "sub" / "a.py").write_text("by the agent\n")
    (folder / ".env").unlink()
    second = work.keep_tree(folder, ("built/",))
    assert first != second
    with tarfile.open(first) as archive:
        assert "./built/large" not in archive.getnames()
        kept = {name: archive.extractfile(name) for name in ("./.env", "./sub/a.py")}
        assert {name: file.read() for name, file in kept.items() if file} == {
            "./.env": b"PASSWORD=1\n",
            "./sub/a.py": b"not committed\n",
        }
    # A third run, before which nothing changed, adds no archive.
    assert work.keep_tree(folder, ("built/",)) == second
    assert sorted(path.name for path in work.folder.glob("before*")) == ["before-2.tar.gz", "before.tar.gz"]


def test_changes_of_which_one_cannot_be_written_leave_the_folder_as_it_was(folder: Path, copy: Path) -> None:
    base = scan(folder, [])
    (copy / "gone.txt").unlink()
    (copy / "run.sh").write_text("echo other\n")
    (copy / "zone").mkdir()
    (copy / "zone" / "new.txt").write_text("new\n")
    changes = compare(base, scan(copy, []))
    # Made here meanwhile, where the agent made a folder.
    (folder / "zone").write_text("a file\n")
    before = scan(folder, [])
    with pytest.raises((OSError, SandmeshError)):
        apply(folder, copy, changes)
    assert scan(folder, []) == before
    assert not list(folder.rglob(".sandmesh-*"))


def test_a_folder_that_became_a_file_and_a_file_that_became_a_folder_are_applied(folder: Path, copy: Path) -> None:
    base = scan(folder, [])
    (copy / "sub" / "a.py").unlink()
    (copy / "sub").rmdir()
    (copy / "sub").write_text("a file now\n")
    (copy / "run.sh").unlink()
    (copy / "run.sh").mkdir()
    (copy / "run.sh" / "inner").write_text("a folder now\n")
    changes = compare(base, scan(copy, []))
    apply(folder, copy, changes)
    assert scan(folder, []) == scan(copy, [])
    assert not list(folder.rglob(".sandmesh-*"))

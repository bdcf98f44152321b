"""Directories of this machine in a storage: byte for byte, each under its name, never half."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sandmesh.errors import InvalidArgument, LeaseLost, NotFound, TooLarge, WorkspaceNotReady
from sandmeshd.cli.user_app import app
from sandmeshd.storage import (
    SavedWorkspace,
    StorageSettings,
    StoredFolders,
    WorkspaceSnapshots,
    open_folders,
    open_storage,
)

from .conftest import LIMIT


def fill(folder: Path) -> None:
    """Make all that a directory may hold."""
    (folder / "a b" / "ü").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "large").write_bytes(os.urandom(6 << 20))
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).write_bytes(b"x\0\xff")
    (folder / "a b" / "ü" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "a b" / "ü" / "run.sh").chmod(0o750)
    (folder / "secret").write_text("s")
    (folder / "secret").chmod(0)
    (folder / "out").symlink_to("/etc/hostname")
    (folder / "dead").symlink_to("nowhere/at/all")


def seen(folder: Path, *, below: bool = True) -> dict[str, tuple[int, str, bytes]]:
    """Give what is in a directory: by name the mode, the link's target and the bytes."""
    found: dict[str, tuple[int, str, bytes]] = {}
    for path in sorted(folder.rglob("*") if below else folder.iterdir()):
        mode, data = path.lstat().st_mode, b""
        if stat.S_ISREG(mode):
            path.chmod(0o600)
            data = path.read_bytes()
            path.chmod(stat.S_IMODE(mode))
        target = str(path.readlink()) if stat.S_ISLNK(mode) else ""
        found[str(path.relative_to(folder))] = (mode, target, data)
    return found


async def test_a_directory_comes_back_byte_for_byte_and_only_changes_are_sent(
    snapshots: WorkspaceSnapshots, tmp_path: Path
) -> None:
    folders, source = StoredFolders(snapshots), tmp_path / "source"
    source.mkdir()
    fill(source)
    before = seen(source)
    first = await folders.upload_folder(source, "projects/demo")
    assert first.uploaded == first.size > 6 << 20
    await folders.download_folder("projects/demo", tmp_path / "copy")
    assert seen(tmp_path / "copy") == before
    (source / "more").write_text("more")
    second = await folders.upload_folder(str(source), "projects/demo")
    assert 0 < second.uploaded < second.size // 2
    (tmp_path / "copy" / "mine").write_text("stays")
    await folders.download_folder("projects/demo", str(tmp_path / "copy"))
    assert set(seen(tmp_path / "copy")) == {*before, "more", "mine"}


async def test_names_of_any_text_never_meet_each_other_or_a_workspace(
    snapshots: WorkspaceSnapshots, tmp_path: Path
) -> None:
    folders = StoredFolders(snapshots)
    texts = ["a/b", "a", "a/pieces", "..", "../a", ".", "a%2Fb", "é", "e\u0301", "x\0y"]
    workspaces = [SavedWorkspace("a", "b/c"), SavedWorkspace("a/b", "c"), SavedWorkspace("a", "b", "c/base")]
    names: list[str | SavedWorkspace] = [*texts, *workspaces]
    for number, name in enumerate(names):
        source = tmp_path / f"source-{number}"
        source.mkdir()
        (source / "mine").write_text(str(number))
        await folders.upload_folder(source, name)
    for number, name in enumerate(names):
        await folders.download_folder(name, tmp_path / f"copy-{number}")
        assert (tmp_path / f"copy-{number}" / "mine").read_text() == str(number)
    for bad in ("", "n" * 201):
        with pytest.raises(InvalidArgument, match="empty, or longer"):
            await folders.upload_folder(tmp_path, bad)


async def test_what_cannot_be_done_is_said_and_changes_nothing(snapshots: WorkspaceSnapshots, tmp_path: Path) -> None:
    folders, source, target = StoredFolders(snapshots), tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "mine").write_text("kept")
    await folders.upload_folder(source, "name")
    with pytest.raises(InvalidArgument, match="not a directory"):
        await folders.upload_folder(source / "mine", "name")
    with pytest.raises(NotFound, match="nothing is saved under 'another'"):
        await folders.download_folder("another", target)
    (source / "large").write_bytes(bytes(LIMIT))
    with pytest.raises(TooLarge):
        await folders.upload_folder(source, "name")
    with pytest.raises(InvalidArgument, match="cannot be created"):
        await folders.download_folder("name", source / "mine" / "below")
    assert not target.exists()
    await folders.download_folder("name", target)
    assert list(seen(target)) == ["mine"]


async def test_a_damaged_one_is_refused_and_a_sessions_workspace_is_never_replaced(tmp_path: Path) -> None:
    settings = StorageSettings(service="local", folder=tmp_path / "kept")
    async with open_folders(settings) as folders:
        (tmp_path / "source").mkdir()
        for number in range(3):
            (tmp_path / "source" / f"{number}").write_bytes(os.urandom(5 << 20))
        await folders.upload_folder(tmp_path / "source", "name")
        damaged = max((tmp_path / "kept").rglob("pieces/*"))
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        with pytest.raises(WorkspaceNotReady, match="another checksum"):
            await folders.download_folder("name", tmp_path / "copy")
        assert set(seen(tmp_path, below=False)) == {"kept", "source"}
        workspace = SavedWorkspace("user", "session")
        await folders.upload_folder(tmp_path / "source", workspace)
        (manifest,) = (tmp_path / "kept").glob("*/manifest.json")
        key = manifest.parent.name
    async with open_storage(settings) as snapshots:
        restored = await snapshots.restore(key)
        assert restored is not None
        await snapshots.save(key, 7, restored)
        with pytest.raises(LeaseLost):
            await StoredFolders(snapshots).upload_folder(tmp_path / "source", workspace)


def test_the_command_puts_and_fetches_and_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SANDMESH_") and "_TEST_" not in name]:
        monkeypatch.delenv(name)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "mine").write_text("kept")
    config = tmp_path / "mesh.env"
    config.write_text(f"SANDMESH_STORAGE_FOLDER={tmp_path}/kept\n")
    run = CliRunner().invoke
    options = ["--name", "demo", "--config", str(config)]
    put = run(app, ["storage", "upload", str(tmp_path / "source"), *options])
    assert put.exit_code == 0, put.output
    assert put.output.startswith("Saved: ")
    assert run(app, ["storage", "download", str(tmp_path / "copy"), *options]).exit_code == 0
    assert (tmp_path / "copy" / "mine").read_text() == "kept"
    neither = run(app, ["storage", "download", str(tmp_path / "copy"), "--config", str(config)])
    assert neither.exit_code == 2
    nowhere = run(app, ["storage", "download", str(tmp_path / "other"), "--name", "demo"])
    assert isinstance(nowhere.exception, InvalidArgument)
    assert "the settings name no storage" in str(nowhere.exception)

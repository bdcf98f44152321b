"""No path leads out of the workspace, whatever links there are and whenever they change."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandmesh import tools
from sandmesh.tools import Tool
from sandmeshd.agent.calls.answer import Answer, ToolFailure
from sandmeshd.agent.files.confinement import Workspace
from sandmeshd.agent.files.messages import show

AT_FDCWD, RENAME_EXCHANGE = -100, 2
SENTINEL = "the sentinel outside"

Run = Callable[[Tool], Answer]
Text = Callable[[Tool], str]


def escapes(path: str) -> list[Tool]:
    """Every way of using a path that leads to the directory outside."""
    return [
        tools.ReadFile(f"{path}/secret"),
        tools.WriteFile(f"{path}/secret", "changed"),
        tools.WriteFile(f"{path}/new/file", "made"),
        tools.EditFile(f"{path}/secret", [{"oldText": "sentinel", "newText": "changed"}]),
        tools.CreateDirectory(f"{path}/made"),
        tools.ListDirectory(path),
        tools.DirectoryTree(path),
        tools.SearchFiles(path, "secret"),
        tools.GetFileInfo(f"{path}/secret"),
        tools.MoveFile(f"{path}/secret", "stolen"),
        tools.MoveFile("mine", f"{path}/planted"),
    ]


@pytest.mark.parametrize("number", range(len(escapes("x"))))
@pytest.mark.parametrize("way", ["dots", "absolute", "link", "relative link", "link to link", "proc"])
def test_nothing_outside_is_reached(
    failure_of: Text, root: Path, granted: Path, outside: Path, way: str, number: int
) -> None:
    (root / "mine").write_text("x")
    (root / "link").symlink_to(outside)
    (root / "relative").symlink_to("../outside")
    (root / "folder").mkdir()
    (root / "folder/chain").symlink_to("../link")
    (root / "magic").symlink_to("/proc/self/root")
    paths = {
        "dots": "folder/../../outside",
        "absolute": str(outside),
        "link": "link",
        "relative link": "relative",
        "link to link": "folder/chain",
        "proc": f"magic/{outside}",
    }
    said = failure_of(escapes(paths[way])[number])
    assert f"Allowed: {root}, {granted}." in said
    assert SENTINEL not in said
    assert (outside / "secret").read_text() == SENTINEL
    assert [path.name for path in outside.iterdir()] == ["secret"]


@pytest.mark.parametrize("name", ["workspace-evil", "workspac", "workspace/../outside", "granted-too"])
def test_a_neighbour_whose_name_starts_alike_is_outside(
    failure_of: Text, tmp_path: Path, outside: Path, name: str
) -> None:
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "secret").write_text(SENTINEL)
    assert "outside" in failure_of(tools.ReadFile(f"{tmp_path}/{name}/secret"))


def test_a_dangling_link_that_leads_out_makes_no_file_there(failure_of: Text, root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside / "new")
    assert "outside" in failure_of(tools.WriteFile("link", "x"))
    assert not (outside / "new").exists()


def test_links_that_stay_inside_are_followed_relative_or_absolute(text_of: Text, root: Path, granted: Path) -> None:
    (root / "folder").mkdir()
    (root / "folder/file").write_text("inside")
    (granted / "file").write_text("granted")
    (root / "relative").symlink_to("folder")
    (root / "absolute").symlink_to(root / "folder")
    (root / "other").symlink_to(granted)
    assert text_of(tools.ReadFile("relative/file")) == "inside"
    assert text_of(tools.ReadFile("absolute/file")) == "inside"
    assert text_of(tools.ReadFile("other/file")) == "granted"
    text_of(tools.WriteFile("absolute/new", "made"))
    assert (root / "folder/new").read_text() == "made"


def test_a_workspace_whose_own_path_goes_through_a_link_works(tmp_path: Path, root: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    (root / "file").write_text("x")
    with Workspace(str(tmp_path / "alias")) as workspace:
        for path in ("file", f"{tmp_path}/alias/file", f"{root}/file"):
            os.close(workspace.open_file(path))


@contextmanager
def swapping(root: Path, outside: Path) -> Generator[None]:
    """Swap `swap` between a directory of the workspace and a link to the outside, as fast as it goes."""
    (root / "swap").mkdir()
    (root / "swap/secret").write_text("inside")
    (root / "evil").symlink_to(outside)
    stop = threading.Event()
    names = os.fsencode(root / "swap"), os.fsencode(root / "evil")

    def swap() -> None:
        libc = ctypes.CDLL(None)
        while not stop.is_set():
            libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_link_swapped_in_a_race_is_never_read_through(run: Run, root: Path, outside: Path) -> None:
    seen: set[str] = set()
    with swapping(root, outside):
        for _ in range(1500):
            with suppress(ToolFailure):
                seen.add(str(run(tools.ReadFile("swap/secret")).content[0]["text"]))
    assert seen <= {"inside"}
    assert seen


def test_a_link_swapped_in_a_race_is_never_written_through(run: Run, root: Path, outside: Path) -> None:
    done = 0
    with swapping(root, outside):
        for at in range(500):
            for request in (
                tools.WriteFile("swap/secret", "changed"),
                tools.WriteFile(f"swap/deep{at}/new", "made"),
                tools.CreateDirectory(f"swap/made{at}"),
                tools.MoveFile("swap/secret", "swap/elsewhere"),
                tools.WriteFile("swap/secret", "inside"),
            ):
                with suppress(ToolFailure):
                    run(request)
                    done += 1
    assert done
    assert (outside / "secret").read_text() == SENTINEL
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_name_swapped_in_a_race_for_a_link_is_never_walked_through(text_of: Text, root: Path, outside: Path) -> None:
    (outside / "only-outside").write_text("")
    with swapping(root, outside):
        found = [text_of(tools.SearchFiles(".", "only-outside")) for _ in range(300)]
        trees = [text_of(tools.DirectoryTree(".")) for _ in range(300)]
    assert set(found) == {"No matches found."}
    assert not any("only-outside" in tree for tree in trees)


parts = st.sampled_from([".", "..", "", "a", "b", "up", "out", "loop", "secret", "c\nd"])


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(parts, min_size=1, max_size=7), st.booleans())
def test_whatever_the_path_it_leads_inside_or_fails(
    workspace: Workspace, root: Path, outside: Path, names: list[str], absolute: bool
) -> None:
    (root / "a/b").mkdir(parents=True, exist_ok=True)
    for link, target in {"a/up": "..", "a/b/out": "../../../outside", "out": str(outside), "loop": "loop"}.items():
        if not (root / link).is_symlink():
            (root / link).symlink_to(target)
    path = f"{root}/{'/'.join(names)}" if absolute else "/".join(names) or "."
    try:
        fd = workspace.open(path, os.O_PATH)
    except (ToolFailure, OSError):
        return
    real = Path(f"/proc/self/fd/{fd}").readlink()
    os.close(fd)
    assert real.is_relative_to(root)


def test_names_are_shown_so_that_bash_takes_them_back() -> None:
    for name in (b"plain name", b"caf\xe9", b"a\nb\t'\\", "naïve".encode(), b"$'x'", b"\x1b[31m"):
        shown = show(os.fsdecode(name))
        assert "\n" not in shown
        word = shown if shown.startswith("$'") else f"'{shown}'"
        shell = subprocess.run(["bash", "-c", f"printf %s {word}"], stdout=subprocess.PIPE, check=True)  # noqa: S607 - any bash
        assert shell.stdout == name

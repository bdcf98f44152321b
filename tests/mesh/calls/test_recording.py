"""Recordings: a video of a desktop that ffprobe takes, and traces of the calls, read from the workspace."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from sandmesh import BrowserSandboxAsync, GuiSandbox, GuiSandboxAsync, errors
from sandmeshd.cli.user_app import app
from tests.mesh.conftest import run_mesh
from tests.mesh.viewers import viewing

pytestmark = [pytest.mark.needs("desktop"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncGenerator[str]:
    """Run a mesh and yield its address."""
    async with run_mesh() as mesh:
        yield mesh.addresses[0]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(address: str) -> AsyncGenerator[GuiSandboxAsync]:
    """Run a sandbox that has a desktop."""
    async with GuiSandboxAsync(base_url=address, timeout=60) as running:
        yield running


async def probe(box: GuiSandboxAsync, path: str, target: Path) -> dict[str, Any]:
    """Return what ffprobe says of a video of the workspace, every frame of which it has decoded."""
    return _probe(await box.fs.read(path, "bytes"), target)


def _probe(data: bytes, video: Path) -> dict[str, Any]:
    video.write_bytes(data)
    command = ["ffprobe", "-v", "error", "-count_frames", "-show_streams", "-show_format", "-of", "json", str(video)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert not done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def trace_of(box: GuiSandboxAsync, path: str) -> list[dict[str, Any]]:
    """Return the lines of a trace."""
    return [json.loads(line) for line in (await box.fs.read(path)).splitlines()]


async def test_a_recording_has_a_video_and_the_calls_with_a_picture_after_each(
    box: GuiSandboxAsync, tmp_path: Path
) -> None:
    async with box.desktop.record() as recording:
        await box.computer_use("mouse_move", [100, 120])
        assert (await box.computer_use("left_click", [5000, 5])).is_error
        await box.desktop.screenshot()
        await box.computer_use("wait", duration=1.5)
    done = recording.result
    assert (done.ended, done.steps) == ("stopped", 3)
    found = await probe(box, done.video, tmp_path / "video.mp4")
    (stream,) = found["streams"]
    assert (stream["codec_name"], stream["width"], stream["height"]) == ("h264", 1024, 768)
    assert float(found["format"]["duration"]) >= 1.5
    assert int(stream["nb_read_frames"]) >= 15
    assert int(found["format"]["size"]) == done.bytes
    header, *steps = await trace_of(box, done.trace)
    assert (header["format"], header["video"]) == ("sandmesh-trace", "video.mp4")
    assert [(step["step"], step["tool"], step["failed"]) for step in steps] == [
        (1, "computer_use", False),
        (2, "computer_use", True),
        (3, "computer_use", False),
    ]
    assert steps[0]["arguments"]["coordinate"] == [100, 120]
    assert "outside of the screen, which is 1024x768" in steps[1]["result"]
    for step in steps:
        assert (await box.fs.read(f"{done.folder}/{step['picture']}", "bytes")).startswith(b"\xff\xd8")


async def test_a_recording_may_be_webm_in_a_folder_of_its_own(box: GuiSandboxAsync, tmp_path: Path) -> None:
    recording = await box.desktop.record("-shots/one", video="webm", fps=5).start()
    await box.computer_use("wait", duration=1)
    done = await recording.stop()
    assert done.video == "./-shots/one/video.webm"
    found = await probe(box, done.video, tmp_path / "video.webm")
    assert found["streams"][0]["codec_name"] == "vp8"
    assert float(found["format"]["duration"]) >= 1


async def test_a_recording_may_be_a_trace_alone(box: GuiSandboxAsync) -> None:
    async with box.desktop.record("traced", video="none") as recording:
        await box.desktop.set_clipboard("kept")
    assert (recording.result.video, recording.result.seconds, recording.result.steps) == ("", 0.0, 1)
    assert (await trace_of(box, "traced/trace.jsonl"))[1]["arguments"] == {"text": "kept"}


async def test_a_video_ends_at_its_limit_of_time_and_says_so(box: GuiSandboxAsync, tmp_path: Path) -> None:
    recording = await box.desktop.record(max_seconds=1).start()
    await box.computer_use("wait", duration=2)
    async with asyncio.timeout(60):
        while (await box.run_shell_command("pgrep -x ffmpeg")).text.strip():
            pass
    done = await recording.stop()
    assert done.ended == "the limit of 1 s was reached"
    assert float((await probe(box, done.video, tmp_path / "video.mp4"))["format"]["duration"]) <= 1.2


async def test_a_video_ends_at_its_limit_of_size_and_says_so(box: GuiSandboxAsync, tmp_path: Path) -> None:
    noise = "while :; do head -c 100000 /dev/urandom | base64 -w 150; done"
    pid = await box.desktop.launch("xterm", "-geometry", "150x50", "-fn", "fixed", "-e", "sh", "-c", noise)
    try:
        recording = await box.desktop.record(max_bytes=4 << 20, fps=30).start()
        async with asyncio.timeout(120):
            while (await box.run_shell_command("pgrep -x ffmpeg")).text.strip():
                pass
        done = await recording.stop()
    finally:
        await box.run_shell_command(f"kill {pid}")
    assert re.fullmatch(r"the limit of \d+ bytes was reached", done.ended), done.ended
    assert done.bytes < 3 << 20
    assert float((await probe(box, done.video, tmp_path / "video.mp4"))["format"]["duration"]) > 0


async def test_a_video_that_was_cut_plays_and_says_why_it_ended(box: GuiSandboxAsync, tmp_path: Path) -> None:
    recording = await box.desktop.record().start()
    async with asyncio.timeout(60):
        while int((await box.run_shell_command(f"stat -c %s {recording.folder}/video.mp4")).text) < 2000:
            pass
    await box.run_shell_command("pkill -9 -x ffmpeg; while pgrep -x ffmpeg; do :; done")
    done = await recording.stop()
    assert done.ended.startswith("ffmpeg ended with signal 9")
    assert float((await probe(box, done.video, tmp_path / "cut.mp4"))["format"]["duration"]) > 0


async def test_a_video_whose_x_server_died_plays_and_says_why_it_ended(box: GuiSandboxAsync, tmp_path: Path) -> None:
    recording = await box.desktop.record().start()
    await box.computer_use("wait", duration=1.5)
    await box.run_shell_command("pkill -9 -x Xtigervnc; while pgrep -x ffmpeg; do :; done")
    done = await recording.stop()
    assert done.ended.startswith("ffmpeg ended with "), done.ended
    assert float((await probe(box, done.video, tmp_path / "cut.mp4"))["format"]["duration"]) > 0
    async with asyncio.timeout(30):
        while (await box.computer_use("screenshot")).is_error:
            pass


async def test_a_screen_that_is_filmed_keeps_its_size(box: GuiSandboxAsync) -> None:
    async with box.desktop.record():
        with pytest.raises(errors.WrongState, match="stop the recording, then resize"):
            await box.desktop.resize(800, 600)


async def test_mistakes_with_recordings_are_errors_that_say_what_to_do(box: GuiSandboxAsync) -> None:
    with pytest.raises(errors.InvalidArgument, match="fps"):
        box.desktop.record(fps=0)
    with pytest.raises(errors.InvalidArgument, match="max_bytes"):
        box.desktop.record(max_bytes=5)
    for folder in ("/tmp/out", "../out", "."):
        with pytest.raises(errors.WrongState, match="is not a folder below the workspace"):
            await box.desktop.record(folder).start()
    async with box.desktop.record("first", video="none") as recording:
        with pytest.raises(errors.WrongState, match="A recording to first is under way: stop it first"):
            await box.desktop.record().start()
        with pytest.raises(errors.WrongState, match="the recording was not stopped"):
            _ = recording.result
    with pytest.raises(errors.WrongState, match="first exists"):
        await box.desktop.record("first").start()
    with pytest.raises(errors.WrongState, match="No recording is under way"):
        await recording.stop()


async def test_the_command_line_shows_a_recording_that_was_fetched(box: GuiSandboxAsync, tmp_path: Path) -> None:
    async with box.desktop.record("fetched") as recording:
        await box.computer_use("mouse_move", [7, 9])
    await box.fs.download_dir(recording.folder, tmp_path / "fetched")
    page = await asyncio.to_thread(_replay, tmp_path / "fetched")
    assert 'src="data:video/mp4;base64,' in page
    assert page.count('src="data:image/jpeg;base64,') == 1
    assert "1. computer_use" in page


def _colours(video: Path) -> set[str]:
    """Return which of the colours of the pages were in the middle of a frame."""
    middle = ("-vf", "crop=2:2:(iw-2)/2:(ih-2)/2", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
    command = ["ffmpeg", "-v", "error", "-i", str(video), *middle]
    frames = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    seen: set[str] = set()
    for red, green, blue in zip(frames[::12], frames[1::12], frames[2::12], strict=True):
        if green < 60 and abs(red - blue) > 140:
            seen.add("red" if red > blue else "blue")
    return seen


def _replay(folder: Path) -> str:
    done = CliRunner().invoke(app, ["replay", str(folder)])
    assert done.exit_code == 0, done.output
    return (folder / "replay.html").read_text()


@pytest.mark.needs("chromium")
async def test_a_recording_of_a_browser_goes_on_when_the_browser_dies(address: str, tmp_path: Path) -> None:
    async with BrowserSandboxAsync(base_url=address, timeout=120) as other:
        await other.fs.write("page.html", "<title>One</title><body bgcolor=blue><p>hello</p>")
        await other.fs.write("after.html", "<title>After</title><body bgcolor=red><p>again</p>")
        async with other.browser.record() as recording:
            assert not (await other.browser_navigate("file:///workspace/page.html")).is_error
            assert (await other.browser_click("nothing", "e99")).is_error
            await other.run_shell_command(f"while [ ! -s {recording.folder}/0002.jpg ]; do sleep 0.01; done")
            await other.run_shell_command("pkill -9 -f /chromium/; while pgrep -f /chromium/; do :; done")
            async with asyncio.timeout(60):
                while (await other.browser_navigate("file:///workspace/page.html")).is_error:
                    pass
            await other.run_shell_command("pkill -9 -f userland/browser; while pgrep -f userland/browser; do :; done")
            async with asyncio.timeout(60):
                while (await other.browser_navigate("file:///workspace/after.html")).is_error:
                    pass
            await other.browser_resize(800, 900)
            await other.browser_take_screenshot()
            await other.browser_wait_for(time=1)
            assert not (await other.browser_close()).is_error
        assert recording.result.ended == "stopped"
        video = _probe(await other.fs.read(recording.result.video, "bytes"), tmp_path / "video.mp4")
        header, *steps = [json.loads(line) for line in (await other.fs.read(recording.result.trace)).splitlines()]
        names = {one.name for one in await other.fs.list(recording.folder)}
    assert header["video"] == "video.mp4"
    assert _colours(tmp_path / "video.mp4") == {"blue", "red"}
    assert [video["streams"][0][name] for name in ("codec_name", "width", "height")] == ["h264", 1280, 720]
    assert float(video["format"]["duration"]) > 1
    assert float(video["format"]["duration"]) == pytest.approx(recording.result.seconds, abs=3)
    assert [step["failed"] for step in steps[:2]] == [False, True]
    assert "hello" in steps[0]["result"]
    assert (steps[-2]["failed"], steps[-1]["tool"]) == (False, "browser_close")
    assert {"0001.jpg", "0002.jpg", f"{len(steps) - 1:04}.jpg"} <= names
    assert f"{len(steps):04}.jpg" not in names  # of a browser that was closed there is no picture


@pytest.mark.needs("chromium")
async def test_a_recording_and_a_person_see_the_same_page_and_neither_ends_the_other(
    address: str, tmp_path: Path
) -> None:
    async with BrowserSandboxAsync(base_url=address, timeout=120) as other:
        await other.fs.write("page.html", "<title>One</title><body bgcolor=blue><p>hello</p>")
        await other.fs.write("after.html", "<title>After</title><body bgcolor=red><p>again</p>")
        assert not (await other.browser_navigate("file:///workspace/page.html")).is_error
        url = await other.browser.url()
        async with viewing(url) as person:
            await person.sees_a_picture(1280, 720)
            async with other.browser.record(folder="first") as recording:
                # Once nobody watches it goes on, and sees what comes then.
                await person.close()
                assert not (await other.browser_navigate("file:///workspace/after.html")).is_error
                await other.browser_wait_for(time=1)
        (tmp_path / "video.mp4").write_bytes(await other.fs.read(recording.result.video, "bytes"))
        assert "red" in _colours(tmp_path / "video.mp4")
        async with viewing(url) as person:
            async with other.browser.record(folder="second", video="webm"):
                await person.sees_a_picture(1280, 720)
            assert not (await other.browser_resize(800, 600)).is_error
            await person.sees_a_picture(800, 600)


async def test_a_sandbox_without_ffmpeg_says_how_to_get_it(address: str) -> None:
    # Where user code looks for programs, but without that one.
    async with GuiSandboxAsync(base_url=address, timeout=60, env={"PATH": "/workspace/programs"}) as other:
        script = "import os; os.mkdir('/workspace/programs'); [os.symlink(f'/usr/bin/{n}', f'/workspace/programs/{n}')"
        script += " for n in os.listdir('/usr/bin') if n != 'ffmpeg']"
        assert not (await other.run_ipython_cell(script)).is_error
        with pytest.raises(errors.WrongState, match=r"has no ffmpeg\. Add the Debian package ffmpeg"):
            await other.desktop.record().start()


async def test_a_program_without_a_loop_records_too(address: str) -> None:
    await asyncio.to_thread(_record, address)


def _record(address: str) -> None:
    with GuiSandbox(base_url=address, timeout=60) as box:
        with box.desktop.record(video="none") as recording:
            box.computer_use("mouse_move", [10, 10])
        assert recording.result.steps == 1
        assert recording.folder == recording.result.folder

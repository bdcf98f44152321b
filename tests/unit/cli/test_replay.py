"""`sandmesh replay`: the page of a recording, of one that was cut, and of one that a hostile sandbox has written."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sandmesh.errors import InvalidArgument, NotFound
from sandmeshd.cli.user_app import app

JPEG = b"\xff\xd8\xff picture"
HEADER: dict[str, Any] = {"format": "sandmesh-trace", "version": 1, "started": "2026-01-02", "video": "video.mp4"}
STEP: dict[str, Any] = {
    "step": 1,
    "at": 1.5,
    "seconds": 0.2,
    "tool": "computer_use",
    "arguments": {"action": "left_click"},
    "result": "",
    "failed": False,
    "picture": "0001.jpg",
}


class Page(HTMLParser):
    """What a page shows: its tags with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.text += data

    def sources(self, tag: str) -> list[str]:
        """Return what the tags of a name show."""
        return [attributes.get("src") or "" for name, attributes in self.tags if name == tag]


def write(folder: Path, *lines: object, cut: str = "") -> Path:
    """Write a trace."""
    folder.joinpath("trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + cut)
    return folder


def replay(*arguments: object) -> Any:
    """Run the command."""
    return CliRunner().invoke(app, ["replay", *map(str, arguments)])


def shown(folder: Path) -> Page:
    """Return the page of a recording."""
    done = replay(folder)
    assert done.exit_code == 0, done.output
    assert done.output == f"{folder / 'replay.html'}\n"
    return Page((folder / "replay.html").read_text())


def data_url(kind: str, data: bytes) -> str:
    """Return what a page has of a file."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def test_the_page_has_the_video_the_calls_and_the_pictures_in_itself(tmp_path: Path) -> None:
    (tmp_path / "video.mp4").write_bytes(b"video")
    (tmp_path / "0001.jpg").write_bytes(JPEG)
    failed = {**STEP, "step": 2, "tool": "browser_click", "failed": True, "result": "There is no e9"}
    page = shown(write(tmp_path, HEADER, STEP, failed))
    assert page.sources("video") == [data_url("video/mp4", b"video")]
    assert page.sources("img") == [data_url("image/jpeg", JPEG)]
    assert "calls: 2, of which 1 failed" in page.text
    assert "1. computer_use at 1.5 s, took 0.20 s\n" in page.text
    assert '"action": "left_click"' in page.text
    assert "There is no e9" in page.text


def test_a_recording_that_was_cut_shows_what_there_is_and_says_so(tmp_path: Path) -> None:
    page = shown(write(tmp_path, HEADER, STEP, {"ended": "size"}, cut='{"step": 2, "at"'))
    assert page.sources("img") == page.sources("video") == []
    assert "The video video.mp4 is missing or empty" in page.text
    assert "the limit of size was reached" in page.text
    assert "cannot be read: 1. The recording may have been cut" in page.text


def test_what_a_sandbox_wrote_is_text_and_reaches_no_file_of_this_machine(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(JPEG)
    folder = tmp_path / "recording"
    folder.mkdir()
    (folder / "0001.jpg").symlink_to(secret)
    (folder / "0002.jpg").write_bytes(b"\x89PNG is no JPEG")
    (folder / "video.mp4").symlink_to(secret)
    evil = "</pre><script>alert(1)</script><img src=x>"
    steps = [{**STEP, "step": n, "tool": evil, "arguments": {evil: evil}, "result": evil} for n in (1, 2, "../secret")]
    page = shown(write(folder, {**HEADER, "started": evil}, {**HEADER, "video": "../secret"}, *steps, [], 7))
    assert page.sources("img") == page.sources("video") == []
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "cannot be read: 3" in page.text
    (policy,) = [attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes]
    assert str(policy).startswith("default-src 'none';")
    assert "unsafe-inline'; script-src 'sha256-" in str(policy)


def test_the_page_may_be_written_elsewhere_and_told_to_programs(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    done = replay("-p", target, "-o", "json", write(tmp_path, HEADER, STEP) / "trace.jsonl")
    assert json.loads(done.output) == {"page": str(target), "steps": 1, "unreadable": 0}
    assert target.exists()


def test_what_is_no_recording_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"pass the folder of one, or its trace\.jsonl"):
        raise replay(tmp_path).exception
    with pytest.raises(InvalidArgument, match="its first line is not that of a recording"):
        raise replay(write(tmp_path, ["other"])).exception
    with pytest.raises(InvalidArgument, match="its format is something-else"):
        raise replay(write(tmp_path, {"format": "something-else"})).exception
    with pytest.raises(InvalidArgument, match="No such file or directory; pass --page FILE"):
        raise replay("-p", tmp_path / "no" / "page.html", write(tmp_path, HEADER)).exception

"""A recording as one HTML page, which has all it shows in itself and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from sandmeshd.cli.replay.trace import RecordedTrace, TraceStep, read_picture, read_video, video_size

LARGEST_VIDEO: Final = 64 << 20
"""The most bytes of a video that is put into the page; a larger one is played from its file."""
_POLICY: Final = "default-src 'none'; img-src data:; media-src data: file:; style-src 'unsafe-inline';"
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 1080px; padding: 1rem; color: #1c1e21;
  background: #f6f7f8; }
video, img { max-width: 100%; border: 1px solid #c8ccd0; background: #fff; display: block; }
video { width: 100%; position: sticky; top: 0; max-height: 45vh; background: #000; }
section { background: #fff; border: 1px solid #dde0e3; border-radius: 6px; margin: 1rem 0; padding: .6rem 1rem; }
section.failed { border-color: #c0392b; }
h2 { font-size: 1rem; margin: .2rem 0; }
h2 button { font: inherit; border: 0; background: none; color: #0b66c2; cursor: pointer; padding: 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 16rem; overflow: auto; background: #f3f4f5;
  padding: .5rem; margin: .4rem 0; }
.failed pre.result { background: #fdecea; }
"""
_SCRIPT: Final = """
const video = document.querySelector("video");
for (const button of document.querySelectorAll("button[data-at]")) {
  button.addEventListener("click", () => { if (video) { video.currentTime = Number(button.dataset.at); } });
}
"""


def write_page(trace: RecordedTrace, target: Path) -> None:
    """Write the page.

    Raises:
        OSError: It cannot be written.
    """
    with target.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(_page(trace))


def _page(trace: RecordedTrace) -> Iterator[str]:
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"{_POLICY} script-src 'sha256-{digest}'"
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield f"<title>Recording of {escape(trace.started)}</title><style>{_STYLE}</style></head><body>\n"
    failed = sum(step.failed for step in trace.steps)
    yield f"<h1>Recording</h1><p>Started {escape(trace.started) or 'at an unknown time'}; calls: {len(trace.steps)}"
    yield f", of which {failed} failed.</p>\n"
    yield from _video(trace)
    for step in trace.steps:
        yield from _section(step)
    if trace.ended:
        yield f"<p>Later calls are not here: the limit of {escape(trace.ended)} was reached.</p>\n"
    if trace.unreadable:
        yield f"<p>Lines of the trace that cannot be read: {trace.unreadable}. The recording may have been cut.</p>\n"
    yield f"<script>{_SCRIPT}</script></body></html>\n"


def _video(trace: RecordedTrace) -> Iterator[str]:
    size = video_size(trace)
    if not size:
        if trace.video:
            yield f"<p>The video {trace.video} is missing or empty.</p>\n"
        return
    if size <= LARGEST_VIDEO:
        encoded = base64.b64encode(read_video(trace, LARGEST_VIDEO)).decode()
        source = f"data:{trace.video_type};base64,{encoded}"
    else:
        source = escape((trace.folder / trace.video).resolve().as_uri(), quote=True)
    yield f'<video controls src="{source}"></video>\n'


def _section(step: TraceStep) -> Iterator[str]:
    yield f'<section class="{"failed" if step.failed else "done"}">'
    yield f'<h2>{step.number}. {escape(step.tool)} <button data-at="{step.at:g}">at {step.at:.1f} s</button>'
    yield f", took {step.seconds:.2f} s{', failed' if step.failed else ''}</h2>\n"
    yield f"<pre>{escape(step.arguments)}</pre>\n"
    if step.result:
        yield f'<pre class="result">{escape(step.result)}</pre>\n'
    picture = read_picture(step.picture)
    if picture:
        encoded = base64.b64encode(picture).decode()
        yield f'<img alt="What was shown after call {step.number}" src="data:image/jpeg;base64,{encoded}">'
    yield "</section>\n"

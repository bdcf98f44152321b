"""Records `make demo` in a terminal and writes it as an animated SVG: docs/demo.svg, which the README shows.

The picture is Rich's rendering of what the terminal received; CSS reveals each line when the demo wrote it and scrolls
as a terminal does. Pauses are cut to MOST_PAUSE seconds, and the last screen stays for LAST_SECONDS.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
MAKE: Final = shutil.which("make") or "make"
PAGE: Final = ROOT / "docs" / "demo.svg"
COLUMNS, ROWS = 84, 30
MOST_PAUSE, LAST_SECONDS = 1.2, 6.0
SHOWN: Final = "~/sandmesh"
_PATH: Final = re.compile(re.escape(str(ROOT)) + r"([\w./-]*)")
LINE_HEIGHT: Final = 24.4
"""What Rich gives a line in its SVGs, in user units; a character is 12.2 wide."""
_CELL: Final = re.compile(r'<text class="(?=[^>]*line-(\d+)\))')
_TEMPLATE: Final = """\
<svg viewBox="0 0 {width} VIEW_HEIGHT" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 20px }}
{styles}
ANIMATION
</style>
<defs><clipPath id="screen"><rect width="{terminal_width}" height="SCREEN_HEIGHT"/></clipPath>{lines}</defs>
<rect width="100%" height="100%" rx="10" fill="#1d1f21"/>
<g fill="#5a5c5e"><circle cx="24" cy="22" r="7"/><circle cx="46" cy="22" r="7"/><circle cx="68" cy="22" r="7"/></g>
<g transform="translate(12, 44)" clip-path="url(#screen)"><g class="scroll">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g>
</g></g>
</svg>
"""


def record() -> list[tuple[float, str]]:
    """Run the demo in a pseudoterminal; return its lines, each with the second at which it was complete."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(ROWS), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    command = [MAKE, "--no-print-directory", "demo"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=terminal, stdout=terminal, stderr=terminal) as demo:
        os.close(terminal)
        lines = _read_lines(controller)
    if demo.returncode:
        sys.exit(f"make demo failed with exit code {demo.returncode}:\n" + "\n".join(line for _, line in lines))
    return lines


def _read_lines(controller: int) -> list[tuple[float, str]]:
    begun, last, cut, rest = time.monotonic(), 0.0, 0.0, b""
    lines: list[tuple[float, str]] = []
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:  # the last holder of the terminal has closed it
            os.close(controller)
            return lines
        now = time.monotonic() - begun - cut
        if now - last > MOST_PAUSE:
            cut += now - last - MOST_PAUSE
            now = last + MOST_PAUSE
        last = now
        *complete, rest = (rest + data).split(b"\n")
        lines += [(now, _readable(line)) for line in complete]


def _readable(line: bytes) -> str:
    # What was written over ends with a carriage return; the clone's path keeps its width, so that columns stay.
    text = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
    return _PATH.sub(lambda path: f"{SHOWN}{path[1]}" + " " * (len(str(ROOT)) - len(SHOWN)), text)


def render(lines: list[tuple[float, str]]) -> str:
    """Return the recording as an SVG that plays in a loop."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    times: list[float] = [0.0]
    console.print(Text.assemble(("$ ", "green"), ("make demo", "bold")))
    for at, line in lines:
        text = Text.from_ansi(line)
        text.truncate(COLUMNS)
        console.print(text, soft_wrap=True)
        times.append(at)
    drawn = console.export_svg(title="make demo", code_format=_TEMPLATE, unique_id="t", font_aspect_ratio=0.61)
    drawn = _CELL.sub(r'<text class="l\1 ', drawn)
    screen = ROWS * LINE_HEIGHT
    drawn = drawn.replace("VIEW_HEIGHT", f"{screen + 56:.0f}").replace("SCREEN_HEIGHT", f"{screen:.0f}")
    return drawn.replace("ANIMATION", _animation(times))


def _animation(times: list[float]) -> str:
    total = times[-1] + LAST_SECONDS
    rules: list[str] = []
    for number, at in enumerate(times):
        rules.append(f".l{number} {{ animation: a{number} {total:.1f}s step-end infinite }}")
        rules.append(f"@keyframes a{number} {{ 0% {{ opacity: 0 }} {100 * at / total:.2f}% {{ opacity: 1 }} }}")
    scrolled = {at: max(0, number + 1 - ROWS) * LINE_HEIGHT for number, at in enumerate(times)}
    steps = " ".join(f"{100 * at / total:.2f}% {{ transform: translateY(-{up:.1f}px) }}" for at, up in scrolled.items())
    rules.append(f".scroll {{ animation: scroll {total:.1f}s step-end infinite }}")
    rules.append(f"@keyframes scroll {{ {steps} }}")
    rules.append("@media (prefers-reduced-motion: reduce) { * { animation: none !important } }")
    return "\n".join(rules)


def main() -> None:
    """Record the demo and write the page."""
    subprocess.run([MAKE, "--no-print-directory", "set-up-local"], cwd=ROOT, check=True)
    PAGE.write_text(render(record()))
    print(f"{PAGE.relative_to(ROOT)}: {PAGE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()

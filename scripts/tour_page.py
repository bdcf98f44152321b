"""Print docs/tour.md: a day's work with the commands, which it runs, with all that they print.

It starts a mesh of its own with its directories below a new home, and stops it. What differs between machines (that
home, this checkout) is written as `~` and `~/sandmesh`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from sandmeshd.runtime.paths import default_state_directory

ROOT: Final = Path(__file__).resolve().parent.parent
SECONDS: Final = 600
HEAD: Final = """# A day's work

Every command on this page was run, in this order, by `python scripts/tour_page.py > docs/tour.md`, and below each
stands all that it printed. [The commands](cli.md) has each with its options.
"""
PROGRAM: Final = """import sys
from sandmesh import BaseSandbox

with BaseSandbox(labels={"project": "tour"}) as box:
    print(box.sandbox_id, flush=True)
    box.run_ipython_cell("seen = 0")
    sys.stdin.read()
"""
DAY: Final = (
    (
        "Is everything there?",
        ("sandmesh version", "sandmesh doctor"),
    ),
    (
        "A mesh, and one command in its own sandbox",
        (
            "sandmesh build base -o json 2>/dev/null",
            "sandmesh up -d --pool base=1 2>/dev/null",
            "sandmesh doctor --mesh",
            "sandmesh run -- python3 -c 'print(6 * 7)'",
            "sandmesh run -- sh -c 'echo out; echo err >&2; exit 3'",
            "echo 'a,b\n1,2' | sandmesh run -- wc -c",
            "sandmesh python 'import numpy; numpy.arange(6).reshape(2, 3).T'",
            "sandmesh python '1/0'",
        ),
    ),
    (
        "A sandbox that a program holds",
        (
            "cat work.py",
            "mkfifo hold; python work.py < hold > id & exec 3> hold; until [ -s id ]; do sleep 0.1; done; cat id",
            "sandmesh ls --label project=tour",
            "sandmesh exec $(cat id) -- sh -c 'echo hello > greeting; pwd; id -u; hostname'",
            "echo 'from outside' > note.txt; sandmesh cp note.txt $(cat id):note.txt",
            "sandmesh exec $(cat id) -- cat note.txt greeting",
            "sandmesh cp $(cat id):greeting fetched.txt && cat fetched.txt",
            """sandmesh call $(cat id) run_ipython_cell '{"code": "seen += 1; seen"}'""",
            """sandmesh call $(cat id) run_ipython_cell '{"code": "seen += 1; seen"}'""",
            "printf 'cd /tmp\\npwd\\nexit 4\\n' | sandmesh shell $(cat id)",
            "sandmesh tools $(cat id)",
            "sandmesh inspect $(cat id) | python -m json.tool",
            "sandmesh events $(cat id)",
        ),
    ),
    (
        "Requirements hold, or are refused",
        (
            "sandmesh run --network none -- python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80))'",
            "sandmesh run --limit memory=64MiB -- python3 -c 'bytearray(1 << 30)'",
            "sandmesh run --timeout 1 -- sleep 60",
            "sandmesh run --template nowhere -- true",
        ),
    ),
    (
        "What it may reach",
        (
            "sandmesh run --session trip --network packages -- pip install -q tomli_w",
            "sandmesh run --session trip --network packages -c 'import tomli_w; print(tomli_w.dumps({\"seven\": 7}))'",
            "sandmesh run --session trip --network packages -- curl -sS http://example.org/",
            "sandmesh events | grep egress_refused",
        ),
    ),
    (
        "Tokens for others",
        (
            "sandmesh token create laptop --user ada --expires 30d > token",
            "sandmesh token ls",
            "sandmesh token revoke laptop",
            "sandmesh token ls --all",
        ),
    ),
    (
        "A port, a snapshot",
        (
            "sandmesh exec $(cat id) -- sh -c 'python3 -m http.server 8000 >/dev/null 2>&1 &'",
            "sandmesh expose $(cat id) 8000 > url; until curl -sf $(cat url)greeting; do sleep 0.2; done",
            "sandmesh ports ls $(cat id)",
            "sandmesh snapshot create $(cat id) > snapshot; cat snapshot",
            "sandmesh snapshot ls",
            "sandmesh snapshot rm $(cat snapshot)",
        ),
    ),
    (
        "The end",
        (
            "sandmesh kill $(cat id)",
            "sandmesh ls",
            "exec 3>&-; wait",
            "sandmesh down",
            "sandmesh doctor --mesh",
        ),
    ),
)


def page(home: Path) -> str:
    """Run the day in one shell and return the page."""
    (home / "work.py").write_text(PROGRAM)
    parts = [HEAD]
    with _shell(home) as shell:
        try:
            for title, commands in DAY:
                shown = [_shown(command, *_run(shell, command)) for command in commands]
                parts.append(f"## {title}\n\n```console\n" + "".join(shown) + "```\n")
        finally:
            _run(shell, "sandmesh down")
            _run(shell, "exit 0")
    return _anywhere("\n".join(parts), home)


def _shell(home: Path) -> subprocess.Popen[str]:
    bin_directory = Path(sys.executable).parent
    environment = {
        "PATH": f"{bin_directory}:/usr/local/bin:/usr/bin:/bin:/usr/sbin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "COLUMNS": "116",
        "NO_COLOR": "1",
        "SANDMESH_RUNTIME_DIRECTORY": str(home / "run"),
        "SANDMESH_STATE_DIRECTORY": str(home / "state"),
    }
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_")) or "proxy" in name}
    return subprocess.Popen(
        ["/bin/bash", "--norc"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
        env={**kept, **environment},
    )


def _run(shell: subprocess.Popen[str], command: str) -> tuple[str, int]:
    """Run a command line in the shell; return its output and its exit code."""
    if shell.stdin is None or shell.stdout is None:
        raise RuntimeError("the shell has no pipes")
    print(f"$ {command}", file=sys.stderr)
    end = f"--- end of {os.getpid()} "
    # Commands must not read the shell's next command from its standard input.
    shell.stdin.write(f"{{\n{command}\n}} < /dev/null\ncode=$?; echo; echo '{end}'$code\n")
    shell.stdin.flush()
    lines: list[str] = []
    for line in shell.stdout:
        if line.startswith(end):
            return "".join(lines).removesuffix("\n"), int(line.removeprefix(end))
        lines.append(line)
    return "".join(lines), 0


def _shown(command: str, printed: str, code: int) -> str:
    if printed and not printed.endswith("\n"):
        printed += "\n"
    ended = f"[exit code {code}]\n" if code else ""
    lines = "\n".join(line.rstrip() for line in printed.splitlines())
    return f"$ {command}\n{lines}{chr(10) if lines else ''}{ended}"


def _anywhere(text: str, home: Path) -> str:
    for path, name in ((str(home), "~"), (str(ROOT), "~/sandmesh"), (str(default_state_directory()), "~/state")):
        text = text.replace(path, name)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory(prefix="tour-", dir="/var/tmp") as name:
        home = Path(name)
        home.chmod(0o755)
        print(page(home), end="")


if __name__ == "__main__":
    main()

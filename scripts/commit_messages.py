"""Check subjects of commits: `commit_messages.py FILE` for one message, `commit_messages.py --new` for the new commits.

Git runs it for each commit after `make hooks`; the checks run it for all commits since the rule holds.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_CHARACTERS = 72
VAGUE = frozenset({"Be", "Do", "Give", "Have", "Let", "Put", "Say", "Tell"})
"""Verbs that fit any change, and so say nothing of this one."""

FIRST = re.compile(r"[A-Z][A-Za-z-]*")
MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")
MARK = "Put pages, settings and help into idiomatic English, held by a test"
"""The subject of the commit after which the rule holds; it and earlier ones are history."""


def faults(subject: str) -> Iterator[str]:
    """Yield what is wrong with a subject."""
    if subject.startswith(MADE_BY_GIT):
        return
    if len(subject) > MOST_CHARACTERS:
        yield f"it has {len(subject)} characters, at most {MOST_CHARACTERS} fit: move the reason to the body"
    if subject.endswith("."):
        yield "it ends with a full stop"
    verb = FIRST.match(subject)
    if verb is None:
        yield "it does not begin with a capital letter: begin with a verb, as in `Resume uploads after a reconnect`"
    elif verb[0] in VAGUE:
        yield f"`{verb[0]}` fits any change: begin with a verb that says what this one does"
    elif verb[0].endswith(("ing", "ed")) and verb[0] not in {"Bring", "Embed", "Feed", "Need", "Seed", "Shed", "Speed"}:
        yield f"`{verb[0]}` is not an imperative"


def new_subjects() -> list[str]:
    """Return the subjects of the commits since the rule holds, newest first.

    There are none where the history does not reach back to its beginning, which is printed.
    """
    command = ["git", "log", "--format=%s"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    subjects = found.stdout.splitlines()
    if MARK not in subjects:
        print(f"nothing was checked: there is no commit {MARK!r} in this clone; fetch its history", file=sys.stderr)
        return []
    return subjects[: subjects.index(MARK)]


def main() -> int:
    """Print what is wrong, a line for each fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("message", nargs="?", type=Path, help="a file with one commit's message")
    parser.add_argument("--new", action="store_true", help="the commits since the rule holds")
    arguments = parser.parse_args()
    subjects = new_subjects() if arguments.new else []
    if arguments.message is not None:
        lines = [line for line in arguments.message.read_text().splitlines() if not line.startswith("#")]
        subjects = lines[:1]
    wrong = [f"{subject!r}: {fault}" for subject in subjects for fault in faults(subject)]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Subjects of commits: what the check refuses, and that the repository's own hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.commit_messages import faults, new_subjects

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "subject",
    [
        "Resume uploads after a reconnect",
        "Feed the meter",
        'Revert "Tell all"',
        "Merge branch 'x'",
        "Bound " + "x" * 66,
    ],
)
def test_a_subject_that_says_what_changes_passes(subject: str) -> None:
    assert list(faults(subject)) == []


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("Tell what a link takes", "fits any change"),
        ("Let requests wait", "fits any change"),
        ("resume uploads", "capital letter"),
        ("Fixed the meter", "not an imperative"),
        ("Adding a meter", "not an imperative"),
        ("Bound the meter.", "full stop"),
        ("Bound " + "x" * 67, "73 characters"),
        ("", "capital letter"),
    ],
)
def test_a_subject_that_does_not_is_refused(subject: str, fault: str) -> None:
    assert any(fault in found for found in faults(subject))


def test_the_hook_refuses_a_message(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("Say something\n\nbody\n# comment\n")
    command = [sys.executable, "scripts/commit_messages.py", str(message)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "`Say` fits any change" in done.stdout) == (1, True)


def test_the_commits_since_the_rule_hold_it() -> None:
    assert [fault for subject in new_subjects() for fault in faults(subject)] == []

"""What a script's source has of the library."""

from __future__ import annotations

from sandmeshd.store.script_loader import load_scripts


def test_a_script_has_of_the_library_what_it_uses_directly_or_not_and_nothing_else() -> None:
    scripts = load_scripts()
    opening, claim = scripts["session_open"].source, scripts["claim"].source
    assert "local function text(" in opening
    assert "local function lease(" not in opening
    # `lease` counts in, which only it knows.
    assert "local function lease(" in claim
    assert "local function count_in(" in claim
    assert "local function forget_usage(" not in claim


def test_a_name_in_a_comment_is_no_use() -> None:
    source = load_scripts()["session_open"].source
    assert "-- Creates a session or finds it" in source
    assert source.count("local function") == 2

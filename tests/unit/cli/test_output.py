"""How the command line prints what sandboxes wrote."""

from __future__ import annotations

import pytest

from sandmeshd.cli.terminal.output import print_table

HOSTILE = "a\x1b[2J\x07\x9b\r\n\u202eb"
ESCAPED = r"a\x1b[2J\x07\x9b\r\n\u202eb"


@pytest.mark.parametrize("in_terminal", [False, True])
def test_control_characters_from_sandboxes_never_reach_the_terminal(
    in_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
    print_table(("TOOL", "WHAT IT DOES"), [(HOSTILE, f"second {HOSTILE}"), ("plain: \u00fc \U0001f600", "")])
    printed = capsys.readouterr().out
    assert printed.count(ESCAPED) == 2
    assert "plain: \u00fc \U0001f600" in printed
    assert not set("\x07\x9b\r\u202e") & set(printed)
    assert "\x1b[2J" not in printed

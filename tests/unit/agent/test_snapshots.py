"""What an answer has of a page's tree: its bounds, its differences, and what it hides."""

from __future__ import annotations

import random

import pytest

from sandmeshd.agent.userland.browser.answer import BrowserFailure
from sandmeshd.agent.userland.browser.snapshots import LARGEST, change, mask, mask_url, part


def rows(count: int, paid: frozenset[int] = frozenset(), gone: frozenset[int] = frozenset()) -> str:
    """Return the tree of a table."""
    lines = ["- main [ref=e1]:", '  - table "Orders" [ref=e2]:']
    for number in range(count):
        if number not in gone:
            lines += [f'    - row "{number}" [ref=r{number}]:', f"      - cell [ref=c{number}]: order {number}"]
            lines += [f"      - text: {'Paid' if number in paid else 'Open'}"]
    return "\n".join(lines)


def test_a_long_tree_is_cut_at_a_line_and_says_how_to_see_the_rest() -> None:
    tree = rows(2000)
    first = part(tree)
    assert len(first) < LARGEST + 300
    end = int(first.rpartition("start_line=")[2].split()[0])
    assert f"- These are lines 1 to {end - 1} of 6002" in first
    seen = [line for line in first.splitlines() if line.startswith(("- main", "  "))]
    while "start_line=" in first:
        first = part(tree, int(first.rpartition("start_line=")[2].split()[0]))
        seen += [line for line in first.splitlines() if line.startswith("  ")]
    assert seen == tree.splitlines()
    with pytest.raises(BrowserFailure, match="6002 lines"):
        part(tree, 6003)


def test_one_element_is_shown_with_what_it_has() -> None:
    shown = part(rows(500), ref="r7")
    assert shown == '```yaml\n- row "7" [ref=r7]:\n  - cell [ref=c7]: order 7\n  - text: Open\n```'
    with pytest.raises(BrowserFailure, match="no element e99"):
        part(rows(5), ref="e99")


def test_a_difference_has_what_is_new_and_where_and_what_is_gone() -> None:
    text = change(rows(500), rows(500, paid=frozenset({7}), gone=frozenset({9, 10})))
    assert text is not None
    assert len(text) < 400
    assert [line for line in text.splitlines() if line.startswith(("- main", "  "))] == [
        "- main [ref=e1]:",
        '  - table "Orders" [ref=e2]:',
        '    - row "7" [ref=r7]:',
        "      - text: Paid",
    ]
    assert text.endswith('- Gone: text: Open; row "9" [ref=r9]; row "10" [ref=r10]')


def test_a_text_that_moves_to_another_row_is_a_difference() -> None:
    text = change(rows(500, paid=frozenset({7})), rows(500, paid=frozenset({8})))
    assert text is not None
    assert 'row "8" [ref=r8]' in text


def test_a_page_that_is_small_or_wholly_new_is_shown_whole() -> None:
    assert change(rows(5), rows(5)) is None
    assert change(rows(500), rows(500).replace("[ref=", "[ref=n")) is None
    assert "unchanged" in str(change(rows(500), rows(500)))


def test_values_of_password_fields_are_hidden_and_others_are_not() -> None:
    tree = '- textbox "Password" [active] [ref=e3]: s3cret\n- textbox "Name" [ref=e4]: Ada\n- text: s3cret'
    assert mask(tree, ["s3cret"]).splitlines()[0].endswith("]: [hidden: what a password field has]")
    assert mask(tree, ["s3cret"]).splitlines()[1:] == tree.splitlines()[1:]
    quoted = '- textbox "Password" [ref=e3]: "a: \\"b\\"  c"'
    assert "hidden" in mask(quoted, ['a: "b" c'])


def test_a_url_is_shown_without_passwords() -> None:
    url = "https://shop.example/in/a%20b?user=ada&p=a+b&q=a+b+c;r=a%20b#a%20b"
    assert mask_url(url, []) == url
    assert mask_url(url, [" "]) == url
    assert mask_url(url, ["a b"]) == "https://shop.example/in/[hidden]?user=ada&p=[hidden]&q=a+b+c;r=[hidden]#[hidden]"
    assert mask_url("about:blank", ["a b"]) == "about:blank"


def test_no_tree_breaks_what_is_shown() -> None:
    """A page makes up its tree: names and texts of all kinds."""
    source = random.Random(7)  # noqa: S311 - not for secrets
    letters = '- [ref=e1]:"\\x\U0001f600'
    for _ in range(500):
        trees = [
            "\n".join(
                " " * source.randrange(12) + "".join(source.choices(letters, k=source.randrange(40)))
                for _ in range(source.randrange(200))
            )
            for _ in range(2)
        ]
        assert len(part(trees[0])) <= LARGEST + 300
        changed = change(*trees)
        assert changed is None or len(changed) <= LARGEST + 10_000
        mask(trees[0], ["x"])

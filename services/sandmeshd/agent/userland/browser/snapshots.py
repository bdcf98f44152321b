"""What an answer has of a page's accessibility tree: a part of stated size, or what changed since the last answer.

The tree is YAML, a line for each element, indented below its parent; `[ref=e12]` names an element for as long as it is
on the page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from sandmeshd.agent.userland.browser.answer import BrowserFailure

LARGEST: Final = 20_000
"""The most characters of a tree in an answer; it is cut at the end of a line."""
_SMALL: Final = 2000
"""A tree of so many characters is shown whole."""
_LONGEST_LINE: Final = 2000
_MOST_PASSWORDS: Final = 100
_MOST_GONE: Final = 20
_WORTH: Final = 0.6
"""A difference that is larger than this part of the whole tree is not shown instead of it."""
_REF: Final = re.compile(r"\[ref=([^\]\s]+)\]")
_VALUE: Final = re.compile(r"^(\s*- (?:textbox|searchbox|combobox|spinbutton)\b.*?\]): (.*)$")
_PART: Final = re.compile(r"(?<=[?&#;/=])[^?&#;/=]+")
_MASK: Final = "[hidden: what a password field has]"
_MASK_OF_URL: Final = "[hidden]"


class Shown:
    """What is known of a tab's trees: the last one in an answer, and what must be in none."""

    def __init__(self) -> None:
        self.tree = ""
        """Empty where the last answer was about another page."""
        self.passwords: list[str] = []

    def note_password(self, value: str) -> None:
        """Note what a password field has. What was typed so far is replaced by what it has become."""
        typed = [each for each in self.passwords if value.startswith(each)]
        kept = [each for each in self.passwords if each not in typed]
        self.passwords = [*kept[-_MOST_PASSWORDS:], *([value] if value else [])]


@dataclass(frozen=True)
class _Node:
    """A line, what tells it from others (with its parent), and how many lines are above it in its branch."""

    line: str
    key: tuple[str, str]
    ancestors: tuple[int, ...]


def _nodes(lines: Sequence[str]) -> Iterator[_Node]:
    branch: list[tuple[int, int, str]] = []
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        while branch and branch[-1][0] >= indent:
            branch.pop()
        parent = branch[-1][2] if branch else ""
        yield _Node(line, (parent, line.strip()), tuple(above for _, above, _ in branch))
        found = _REF.search(line)
        branch.append((indent, number, found[1] if found else parent))


def mask(tree: str, secrets: Collection[str]) -> str:
    """Return a tree without the values of fields that are among secrets."""
    hidden = {" ".join(each.split()) for each in secrets if each.strip()}
    if not hidden:
        return tree
    return "\n".join(_masked(line, hidden) for line in tree.splitlines())


def _masked(line: str, hidden: Collection[str]) -> str:
    found = _VALUE.match(line)
    if found is None:
        return line
    value = found[2]
    if value.startswith('"'):
        with suppress(ValueError):
            value = str(json.loads(value))
    return f"{found[1]}: {_MASK}" if " ".join(value.split()) in hidden else line


def mask_url(url: str, secrets: Collection[str]) -> str:
    """Return a URL without the parts that are among secrets: a form may have been sent by it."""
    hidden = {each.strip() for each in secrets if each.strip()}
    if not hidden:
        return url
    return _PART.sub(lambda found: _MASK_OF_URL if unquote_plus(found[0]).strip() in hidden else found[0], url)


def part(tree: str, start_line: int = 1, ref: str = "") -> str:
    """Return a part of a tree as it is shown: from a line on, or one element with what it has.

    Raises:
        BrowserFailure: It has no such line or element.
    """
    lines = tree.splitlines()
    if ref:
        lines = _branch(lines, ref)
    if start_line > max(1, len(lines)):
        raise BrowserFailure(f"The snapshot has {len(lines)} lines: there is no line {start_line}.")
    shown: list[str] = []
    room = LARGEST
    for line in lines[start_line - 1 :]:
        kept = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} [cut]"
        room -= len(kept) + 1
        if room < 0:
            break
        shown.append(kept)
    text = "\n".join(["```yaml", *shown, "```"])
    end = start_line - 1 + len(shown)
    if start_line == 1 and end == len(lines):
        return text
    of = f" of {ref}" if ref else ""
    more = f"; browser_snapshot with start_line={end + 1} shows the next" if end < len(lines) else ""
    return f"{text}\n- These are lines {start_line} to {end} of {len(lines)}{of}{more}. With ref it shows one element."


def _branch(lines: Sequence[str], ref: str) -> list[str]:
    for number, line in enumerate(lines):
        if f"[ref={ref}]" in line:
            indent = len(line) - len(line.lstrip())
            end = number + 1
            while end < len(lines) and len(lines[end]) - len(lines[end].lstrip()) > indent:
                end += 1
            return [each[indent:] for each in lines[number:end]]
    raise BrowserFailure(f"The page has no element {ref}: call browser_snapshot without ref to see those it has.")


def change(before: str, now: str) -> str | None:
    """Return what a tree has that the one before it had not, with what that is in, and what is gone.

    Returns: the text of an answer; None where the whole tree is better.
    """
    if len(now) <= _SMALL:
        return None
    old, new = list(_nodes(before.splitlines())), list(_nodes(now.splitlines()))
    known = Counter(node.key for node in old)
    kept: set[int] = set()
    for number, node in enumerate(new):
        if known[node.key] > 0:
            known[node.key] -= 1
        else:
            kept.update((number, *node.ancestors))
    gone = _gone(old, known)
    if not kept and not gone:
        return "- Page Snapshot: unchanged. Call browser_snapshot to see it."
    text = "\n".join(new[number].line for number in sorted(kept))
    if len(text) > min(LARGEST, _WORTH * len(now)):
        return None
    head = "- Page Snapshot, only what is new in it (call browser_snapshot for the whole):"
    return "\n".join([head, "```yaml", text, "```", *([f"- Gone: {gone}"] if gone else [])])


def _gone(old: Sequence[_Node], left: Counter[tuple[str, str]]) -> str:
    """Return the outermost elements that are not there any more."""
    missing = Counter({key: count for key, count in left.items() if count > 0})
    numbers: set[int] = set()
    named: list[str] = []
    for number, node in enumerate(old):
        if missing[node.key] > 0:
            missing[node.key] -= 1
            numbers.add(number)
            if numbers.isdisjoint(node.ancestors):
                named.append(node.line.strip().removeprefix("- ").rstrip(":")[:200])
    more = f"; and {len(named) - _MOST_GONE} more" if len(named) > _MOST_GONE else ""
    return "; ".join(named[:_MOST_GONE]) + more

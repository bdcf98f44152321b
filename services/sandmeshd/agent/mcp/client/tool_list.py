"""The tools of a server, each checked by itself: an invalid one costs no other."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from sandmeshd.agent.mcp.client.protocol import CONTROLS, MAX_MESSAGE

_MAX_PAGES: Final = 200
_LONGEST_NAME: Final = 128
_MAX_PROBLEMS: Final = 20
KEPT: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")

Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class ToolListing:
    """The valid tools of a server, and what is wrong with the others."""

    def __init__(self) -> None:
        self._tools: dict[str, dict[str, Any]] = {}
        self._problems: list[str] = []
        self._size = 0

    def encoded(self) -> bytes:
        """Return both as JSON."""
        problems = self._problems[:_MAX_PROBLEMS]
        if len(self._problems) > len(problems):
            problems.append(f"and {len(self._problems) - len(problems)} more")
        return json.dumps({"tools": list(self._tools.values()), "problems": problems}).encode()

    def take(self, raw: object) -> None:
        """Take what the server sent as `tools`."""
        if not isinstance(raw, list):
            self._problems.append(f"what it sent as its tools is not a list but {_kind(raw)}")
            return
        for tool in cast("list[object]", raw):
            problem = self._add(cast("dict[str, Any]", tool)) if isinstance(tool, dict) else "a tool is not an object"
            if problem:
                self._problems.append(problem)

    def _add(self, tool: dict[str, Any]) -> str:
        name = tool.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            return f"a tool was left out: its name is not a text of 1 to {_LONGEST_NAME} characters"
        if CONTROLS.search(name):
            return f"tool {name!r} was left out: its name has control characters"
        problem = _wrong(tool)
        if problem:
            return f"tool {name!r} was left out: {problem}"
        if name in self._tools:
            return f"tool {name!r} was listed twice: the first is used"
        kept = {key: tool[key] for key in KEPT if tool.get(key) is not None}
        self._size += len(json.dumps(kept)) + 2
        if self._size > MAX_MESSAGE * 3 // 4:
            return f"tool {name!r} was left out: the list of tools is too long"
        self._tools[name] = kept
        return ""


def _wrong(tool: Mapping[str, Any]) -> str:
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        return f"its inputSchema is not an object but {_kind(schema)}"
    if cast("dict[str, Any]", schema).get("type", "object") != "object":
        return "its inputSchema is not that of an object"
    if not all(isinstance(tool.get(key), str | None) for key in ("title", "description")):
        return "its title or description is not a text"
    if not all(isinstance(tool.get(key), dict | None) for key in ("outputSchema", "annotations")):
        return "its outputSchema or annotations is not an object"
    return ""


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


async def list_all(ask: Ask) -> ToolListing:
    """Request all pages."""
    listing, cursor = ToolListing(), None
    for _ in range(_MAX_PAGES):
        page = await ask("tools/list", {"cursor": cursor} if cursor else {})
        listing.take(page.get("tools"))
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            break
    return listing

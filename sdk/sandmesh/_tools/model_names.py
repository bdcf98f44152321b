"""The names that tools have for models.

Vendors accept 1 to 64 letters, digits, `_` and `-` (https://platform.openai.com/docs/api-reference/chat/create,
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use), and no name twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

from sandmesh._tools.declaration import TOOLS

LONGEST = 64
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")


def qualified_names(tools: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the name by which a sandbox's tool is called, of each (group, tool).

    It is the tool's name, or "group.tool" where several groups have one of that name. A tool that sandmesh declares
    keeps its name: no MCP server takes it.
    """
    listed = list(tools)
    times = Counter(tool for _, tool in listed)
    return {
        (group, tool): tool if times[tool] == 1 or _is_declared(group, tool) else f"{group}.{tool}"
        for group, tool in listed
    }


def _is_declared(group: str, tool: str) -> bool:
    return tool in TOOLS and TOOLS[tool].group == group


def model_names(names: Iterable[str]) -> dict[str, str]:
    """Return the name for models of each called name: itself where that is possible.

    Other characters become `_`. A name that is too long, or that would be another tool's, ends with a part of its hash.
    """
    ordered = sorted(names, key=lambda name: (_shortened(name) != name, name))
    taken: dict[str, str] = {}
    for name in ordered:
        short = _shortened(name)
        taken[short if short not in taken else _hashed(name)] = name
    return {name: short for short, name in taken.items()}


def _shortened(name: str) -> str:
    plain = _UNFIT.sub("_", name)
    return plain if 0 < len(plain) <= LONGEST else _hashed(name)


def _hashed(name: str) -> str:
    suffix = sha256(name.encode()).hexdigest()[:8]
    return f"{_UNFIT.sub('_', name)[: LONGEST - len(suffix) - 1]}_{suffix}"

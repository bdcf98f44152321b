"""Tools of the template's own: Python functions that run in a separate kernel, beside the one of users' cells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.schemas import read_arguments
from sandmeshd.agent.calls.toolbox import Service
from sandmeshd.agent.python.cells import Cells

GROUP: Final = "own"

# The last line is what the kernel shows: a figure or a data frame as it shows them after any cell.
_CELL: Final = """\
import json as _json, sys as _sys
_spec = _json.loads({spec!r})
_own = globals().setdefault("_own", {{}})
if _spec["name"] not in _own:
    _own[_spec["name"]] = {{"__name__": _spec["name"]}}
    exec(compile(_spec["source"], "<tool " + _spec["name"] + ">", "exec"), _own[_spec["name"]])
_value = {awaited}_own[_spec["name"]][_spec["name"]](**_spec["arguments"])
_shown = None
if isinstance(_value, str):
    _sys.stdout.write(_value)
elif isinstance(_value, (bool, int, float, list, dict)):
    try:
        _sys.stdout.write(_json.dumps(_value, ensure_ascii=False))
    except (TypeError, ValueError):
        _shown = _value
else:
    _shown = _value
_shown
"""


@dataclass(frozen=True)
class _Cell:
    code: str
    timeout: float | None = None


class OwnTools:
    """The tools by name. `make` makes the kernel that they share, when the first is called."""

    def __init__(self, tools: Iterable[agent_pb2.OwnTool], make: Callable[[], Cells]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._make = make
        self._cells: Cells | None = None

    def services(self) -> dict[str, Service]:
        """Return the tools as a toolbox takes them."""
        return {
            name: Service(partial(self.prepare, name), self.run, _shown(tool)) for name, tool in self._tools.items()
        }

    def prepare(self, name: str, arguments: bytes) -> _Cell:
        """Return the cell that runs a tool.

        Raises:
            InvalidArgument: The arguments do not fit its schema.
        """
        tool = self._tools[name]
        checked = read_arguments(name, json.loads(tool.input_schema_json or b"{}"), arguments)
        spec = json.dumps({"name": name, "source": tool.source, "arguments": checked})
        return _Cell(_CELL.format(spec=spec, awaited="await " if tool.source.startswith("async ") else ""))

    async def run(self, cell: Any, call: RunningCall) -> Outcome:
        """Run a tool's cell when its turn comes."""
        if self._cells is None:
            self._cells = self._make()
        return await self._cells.run(cell, call)

    async def close(self) -> None:
        """Close the kernel."""
        if self._cells is not None:
            await self._cells.close()


def _shown(tool: agent_pb2.OwnTool) -> pb.Tool:
    schema = tool.input_schema_json or b"{}"
    return pb.Tool(name=tool.name, group=GROUP, description=tool.description, input_schema_json=schema)

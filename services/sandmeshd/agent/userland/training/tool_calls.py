"""Calls of tools in an assistant's message, and tools in a prompt, in the forms that open models are trained with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sandmesh.shared.environment import EnvironmentRefusal

_CALL: Final = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_PROMPT: Final = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

Always use the latest list of tools. For each function call, return a JSON object with its name and arguments within
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


@dataclass(frozen=True)
class TrainingCall:
    """A call: a tool and its arguments by name."""

    name: str
    arguments: Mapping[str, Any]

    @property
    def is_plain(self) -> bool:
        """Whether its arguments have names as Python has them, so that nothing else is in its text."""
        return all(name.isidentifier() for name in self.arguments)

    def written(self) -> str:
        """Return it as Python has it."""
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


def read_calls(message: object) -> list[TrainingCall]:
    """Return the calls of an assistant's message.

    They are in `tool_calls`, as OpenAI's interface has them, else in `content`, each a JSON object within <tool_call>;
    without such an object there is no call, as the text of a model may be anything.

    Raises:
        EnvironmentRefusal: It is not a message.
    """
    if not isinstance(message, dict) or not ({"content", "tool_calls"} & set(cast("dict[str, Any]", message))):
        raise EnvironmentRefusal(
            'An action is an assistant\'s message: {"role", "content"}, perhaps with "tool_calls".'
        )
    fields = cast("dict[str, Any]", message)
    listed: Any = fields.get("tool_calls")
    functions: list[Any]
    if isinstance(listed, list) and listed:
        functions = [_get(each, "function") for each in listed]  # pyright: ignore[reportUnknownVariableType]  # of JSON
    else:
        functions = [_parsed(found) for found in _CALL.findall(str(fields.get("content") or ""))]
    return [call for call in map(_call, functions) if call is not None]


def _get(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _call(functions: Any) -> TrainingCall | None:
    if not isinstance(functions, dict):
        return None
    fields = cast("dict[str, Any]", functions)
    name, arguments = fields.get("name"), fields.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    named = cast("dict[str, Any]", arguments)
    return TrainingCall(name, named)


def write_tools(functions: Sequence[Mapping[str, Any]]) -> str:
    """Return the prompt that has the tools."""
    lines = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in functions]
    return _PROMPT.format(tools="\n".join(lines))

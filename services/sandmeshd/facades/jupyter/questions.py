"""Questions about code: completions, documentation, whether it is complete; the kernel's Python answers them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pydantic_core import from_json

from sandmesh.sandbox.kernels import KernelAsync
from sandmeshd.facades.jupyter.messages import NotebookMessage

_SECONDS: Final = 30.0
_MOST_MATCHES: Final = 1_000
# A cell of the user's kernel that leaves no trace: not in In, not in its numbers, not in its names.
_SOURCE: Final = """import json, sys
shell = get_ipython()
history, number = shell.history_manager, shell.execution_count
for kept in (history.input_hist_parsed, history.input_hist_raw):
    kept.pop()
history._i00, history._i, history._ii = history._i, history._ii, history._iii
shell.user_ns.pop(f"_i{number}", None)
shell.user_ns.update(_i=history._i, _ii=history._ii, _iii=history._iii)
shell.execution_count = number - 1

def complete(code, position, most):
    from IPython.core.completer import provisionalcompleter, rectify_completions
    with provisionalcompleter():
        found = list(rectify_completions(code, shell.Completer.completions(code, position)))[:most]
    kinds = [{"start": one.start, "end": one.end, "text": one.text, "type": one.type} for one in found]
    return {
        "matches": [one.text for one in found],
        "cursor_start": found[0].start if found else position,
        "cursor_end": found[0].end if found else position,
        "metadata": {"_jupyter_types_experimental": kinds},
    }

def inspect(code, position, detail):
    from IPython.utils.tokenutil import token_at_cursor
    name = token_at_cursor(code, position)
    try:
        data = shell.object_inspect_mime(name, detail_level=detail) if name else {}
    except KeyError:
        data = {}
    return {"found": bool(data), "data": data, "metadata": {}}

def is_complete(code):
    status, indent = shell.check_complete(code)
    return {"status": status, "indent": indent}

def expressions(texts):
    return shell.user_expressions(texts)

sys.stdout.write(marker + json.dumps(globals()[question](*arguments), default=str) + "\\n")
"""

Answer = dict[str, Any]


async def _put(kernel: KernelAsync, question: str, *arguments: object) -> Answer | None:
    """Return what the kernel answers; None where it is not of Python, or does not answer."""
    if kernel.language != "python":
        return None
    marker = secrets.token_hex(16)
    names: dict[str, object] = {"question": question, "arguments": arguments, "marker": marker}
    result = await kernel.run(f"exec({_SOURCE!r}, {names!r})", _SECONDS)
    found = next((line for line in result.stdout.splitlines() if line.startswith(marker)), marker)
    try:
        answer: object = from_json(found.removeprefix(marker))
    except ValueError:
        return None
    return cast("Answer", answer) if isinstance(answer, dict) else None


async def complete(kernel: KernelAsync, message: NotebookMessage) -> Answer:
    """Return the content of a complete_reply."""
    code, position = message.text("code"), message.number("cursor_pos")
    found = await _put(kernel, "complete", code, position, _MOST_MATCHES)
    none: Answer = {"matches": list[str](), "cursor_start": position, "cursor_end": position, "metadata": Answer()}
    return {"status": "ok", **(found or none)}


async def inspect(kernel: KernelAsync, message: NotebookMessage) -> Answer:
    """Return the content of an inspect_reply."""
    arguments = message.text("code"), message.number("cursor_pos"), message.number("detail_level")
    found = await _put(kernel, "inspect", *arguments)
    return {"status": "ok", **(found or {"found": False, "data": Answer(), "metadata": Answer()})}


async def is_complete(kernel: KernelAsync, message: NotebookMessage) -> Answer:
    """Return the content of an is_complete_reply."""
    return await _put(kernel, "is_complete", message.text("code")) or {"status": "unknown"}


async def expressions(kernel: KernelAsync, message: NotebookMessage) -> Answer:
    """Return the values of the expressions that an execute_request has for after its code."""
    texts: object = message.content.get("user_expressions")
    if not isinstance(texts, Mapping) or not texts:
        return {}
    wanted = {str(name): str(text) for name, text in cast("Mapping[str, object]", texts).items()}
    return await _put(kernel, "expressions", json.loads(json.dumps(wanted))) or {}


QUESTIONS: Final[dict[str, Callable[[KernelAsync, NotebookMessage], Any]]] = {
    "complete_request": complete,
    "inspect_request": inspect,
    "is_complete_request": is_complete,
}

"""`POST /execute`: a cell, and what it writes and shows as lines of JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from sandmesh.events import CallEvent, ContentBlock, Output, Result
from sandmesh.sandbox.kernels import KernelAsync
from sandmeshd.facades.cells import ends_in_value, whole_blocks
from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.guests import Guest
from sandmeshd.facades.e2b.interpreter.contexts import execution_kernel
from sandmeshd.facades.e2b.interpreter.results import read_result
from sandmeshd.facades.e2b.keepalives import with_pauses
from sandmeshd.facades.e2b.requests import text, texts

_KEEPALIVE_SECONDS: Final = 5.0
Line = dict[str, Any]


async def execute(guest: Guest, request: web.Request, found: dict[str, Any]) -> web.StreamResponse:
    """Run code in a context and send what it writes, shows and raises."""
    name, language = text(found, "context_id"), text(found, "language")
    if name and language:
        raise ApiError(400, "Only one of context_id or language can be provided")
    code, values = text(found, "code"), texts(found, "env_vars")
    kernel = await execution_kernel(guest, name, language)
    around = setting(kernel.language, values) if values else ("", "")
    number = guest.executions[kernel.id] = guest.executions.get(kernel.id, 0) + 1
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
    await response.prepare(request)
    await _write(response, {"type": "number_of_executions", "execution_count": number})
    async with aclosing(_with_variables(kernel, code, *around)) as lines:
        async for line in with_pauses(lines, _KEEPALIVE_SECONDS):
            await _write(response, line or {"type": "keepalive"})
    await _write(response, {"type": "end_of_execution"})
    await response.write_eof()
    return response


async def _with_variables(kernel: KernelAsync, code: str, before: str, after: str) -> AsyncGenerator[Line]:
    if not code.strip():
        return
    if before:
        await kernel.run(before)
    try:
        async with aclosing(_lines(kernel, code)) as lines:
            async for line in lines:
                yield line
    finally:
        if after:
            await kernel.run(after)


async def _lines(kernel: KernelAsync, code: str) -> AsyncGenerator[Line]:
    """Yield what a cell writes and shows; a block is held until it is known whether it is the last."""
    held: ContentBlock | None = None
    is_value = ends_in_value(code, kernel.language)
    async with kernel.stream(code) as events:
        async for event in whole_blocks(events):
            if held is not None and isinstance(event, ContentBlock | Result):
                is_last = isinstance(event, Result)
                yield read_result(held.block, is_main=is_last and is_value)
                held = None
            if isinstance(event, ContentBlock):
                # A block for standard error is a traceback, which the result has in parts.
                held = event if event.block.get("description") != "stderr" else None
            elif line := _line(event):
                yield line


def _line(event: CallEvent) -> Line | None:
    if isinstance(event, Output):
        return {"type": event.stream, "text": event.text, "timestamp": datetime.now(UTC).isoformat()}
    if isinstance(event, Result) and event.is_error:
        error: dict[str, Any] = (event.structured or {}).get("error") or {}
        traceback = "\n".join(error.get("traceback", [])) or event.message
        name, value = error.get("name", event.reason.title()), error.get("value", event.message)
        return {"type": "error", "name": name, "value": value, "traceback": traceback}
    return None


async def _write(response: web.StreamResponse, line: Line) -> None:
    await response.write(json.dumps(line, default=str).encode() + b"\n")


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PYTHON_SET: Final = """import os as __e2b_os
__e2b_saved = {{name: __e2b_os.environ.get(name) for name in {values!r}}}
__e2b_os.environ.update({values!r})
"""
_PYTHON_UNSET: Final = """for __e2b_name, __e2b_value in __e2b_saved.items():
    if __e2b_value is None:
        __e2b_os.environ.pop(__e2b_name, None)
    else:
        __e2b_os.environ[__e2b_name] = __e2b_value
"""
_NODE_SET: Final = """(() => {{
  const values = {values};
  globalThis.__e2bSaved = Object.keys(values).map((name) => [name, process.env[name]]);
  Object.assign(process.env, values);
}})()
"""
_NODE_UNSET: Final = """(() => {
  for (const [name, value] of globalThis.__e2bSaved)
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
})()
"""


def setting(language: str, values: dict[str, str]) -> tuple[str, str]:
    """Return the code that sets variables, and the code that restores what they were.

    Raises:
        ApiError: The kernels of the language take none.
    """
    if language == "python":
        return _PYTHON_SET.format(values=values), _PYTHON_UNSET
    if language in {"javascript", "typescript"}:
        return _NODE_SET.format(values=json.dumps(values)), _NODE_UNSET
    if language == "bash" and all(map(_NAME.fullmatch, values)):
        saved = [f'__e2b_{name}="${{{name}-}}"; __e2b_had_{name}="${{{name}+x}}"' for name in values]
        exported = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        back = [
            f'if [ -n "$__e2b_had_{name}" ]; then export {name}="$__e2b_{name}"; else unset {name}; fi'
            for name in values
        ]
        return "\n".join([*saved, *exported]), "\n".join(back)
    raise ApiError(400, f"env_vars are not available for {language}: set them in the code")

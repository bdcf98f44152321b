"""Cells of clients, run one after another in a kernel of a sandbox."""

from __future__ import annotations

import base64
import time
from typing import Any, Final, TypeAlias

from sandmesh import SandboxAsync
from sandmesh.events import ContentBlock, Output, Result
from sandmesh.sandbox.kernels import KernelAsync
from sandmeshd.facades.cells import mime_bundle, whole_blocks
from sandmeshd.facades.sandboxfusion.programs import SandboxPool
from sandmeshd.facades.sandboxfusion.requests import RunJupyter

Cell: TypeAlias = dict[str, Any]

_LEAST_SECONDS: Final = 0.001
_MOST_TEXT: Final = 4 << 20


async def run_cells(sandboxes: SandboxPool, key: str, request: RunJupyter) -> dict[str, Any]:
    """Run cells until all have run or the time is over; a cell that raises stops none.

    Raises:
        SandmeshError: No sandbox could be created for it.
        OSError: A file cannot be written.
    """
    async with sandboxes.sandbox(key, request.total_timeout) as box:
        for name, content in request.files.items():
            if content is not None:
                await box.fs.write(name, base64.b64decode(content))
        began = time.monotonic()
        cells, late = await _cells(box, request, began + request.total_timeout)
        driver = {
            "status": "TimeLimitExceeded" if late else "Finished",
            "execution_time": time.monotonic() - began,
            "return_code": None if late else 0,
            "stdout": "",
            "stderr": "",
        }
        files = {name: await _fetch(box, name) for name in request.fetch_files if await box.fs.exists(name)}
        return {"driver": driver, "cells": cells, "files": files, "executor_pod_name": box.sandbox_id}


async def _cells(box: SandboxAsync, request: RunJupyter, ends: float) -> tuple[list[Cell], bool]:
    kernel, cells = await box.kernels.get("default"), list[Cell]()
    for code in request.cells:
        left = max(_LEAST_SECONDS, ends - time.monotonic())
        cell = _empty()
        cells.append(cell)
        if code.strip() and not await _run(kernel, code, min(left, request.cell_timeout or left), cell):
            return cells, True
    return cells, False


async def _run(kernel: KernelAsync, code: str, seconds: float, cell: Cell) -> bool:
    """Run a cell; return whether it ended in time."""
    async with kernel.stream(code, seconds) as events:
        async for event in whole_blocks(events):
            if isinstance(event, Output):
                cell[event.stream] = (cell[event.stream] + event.text)[:_MOST_TEXT]
            elif isinstance(event, ContentBlock) and event.block.get("description") != "stderr":
                # A block for standard error is a traceback, which the result has in parts.
                cell["display"].append(mime_bundle(event.block))
            elif isinstance(event, Result) and event.is_error:
                cell["error"].append(_error(event))
                return event.reason != "TIMED_OUT"
    return True


def _error(result: Result) -> dict[str, Any]:
    raised: dict[str, Any] = (result.structured or {}).get("error") or {}
    name, value = raised.get("name", result.reason.title()), raised.get("value", result.message)
    return {"ename": name, "evalue": value, "traceback": raised.get("traceback", [])}


def _empty() -> Cell:
    return {"stdout": "", "stderr": "", "display": [], "error": []}


async def _fetch(box: SandboxAsync, name: str) -> str:
    return base64.b64encode(await box.fs.read(name, "bytes")).decode()

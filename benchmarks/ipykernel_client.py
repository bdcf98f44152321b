"""A kernel of a sandbox behind the methods of jupyter_client that ipykernel's own tests use: execute, and its messages.

`benchmarks.ipykernel_suite` puts it in place of their `start_new_kernel`. What our kernels have no request for
(completion, inspection, history, comms, sockets) is missing here, too: tests of it fail by an AttributeError.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from queue import Queue
from threading import Thread
from typing import Any

from sandmesh import BaseSandbox, ContentBlock, InputRequested, Output, Result
from sandmesh.sandbox.sync_handles import Kernel

ANSWER_SECONDS = 30.0
Message = dict[str, Any]


class Client:
    """Runs cells one after another; what they send is put into queues of messages."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.parent: Manager | None = None
        self.session: Any = import_module("jupyter_client.session").Session()
        self._cells: Queue[tuple[Message, dict[str, Any]] | None] = Queue()
        self._lines: Queue[str] = Queue()
        self._queues: dict[str, Queue[Message]] = {name: Queue() for name in ("shell", "iopub", "stdin")}
        self._count, self._failed = 0, False
        Thread(target=self._serve, daemon=True).start()

    def execute(self, code: str, **options: Any) -> str:
        """Run a cell once those before it have ended; return the id of its request."""
        request = self.session.msg("execute_request", {"code": code})
        self._cells.put((request, {"code": code, **options}))
        return str(request["header"]["msg_id"])

    def input(self, line: str) -> None:
        """Answer the code that waits for a line."""
        self._lines.put(line)

    def get_shell_msg(self, timeout: float | None = None) -> Message:
        """Return the next reply."""
        return self._queues["shell"].get(timeout=timeout)

    def get_iopub_msg(self, timeout: float | None = None) -> Message:
        """Return the next of what cells wrote, showed and raised."""
        return self._queues["iopub"].get(timeout=timeout)

    def get_stdin_msg(self, timeout: float | None = None) -> Message:
        """Return the next request for a line."""
        return self._queues["stdin"].get(timeout=timeout)

    def is_alive(self) -> bool:
        """Return whether the kernel lives."""
        return True

    def stop_channels(self) -> None:
        """End the thread that runs cells."""
        self._cells.put(None)

    def _send(self, queue: str, kind: str, content: dict[str, Any], parent: Message) -> None:
        self._queues[queue].put(self.session.msg(kind, content, parent=parent))

    def _serve(self) -> None:
        while (found := self._cells.get()) is not None:
            request, options = found
            self._send("iopub", "status", {"execution_state": "busy"}, request)
            content = {"status": "aborted"} if self._failed else self._run(request, options)
            self._failed = content["status"] == "error" and options.get("stop_on_error", True)
            self._failed = self._failed and not self._cells.empty()
            self._send("shell", "execute_reply", content, request)
            self._send("iopub", "status", {"execution_state": "idle"}, request)

    def _run(self, request: Message, options: dict[str, Any]) -> dict[str, Any]:
        silent = options.get("silent", False)
        self._count += 0 if silent or not options.get("store_history", True) else 1
        count = {"execution_count": max(self._count, 1)}
        if not silent:
            self._send("iopub", "execute_input", {"code": options["code"], **count}, request)
        ended = Result("EXITED", False, 0, None, "", None)
        with self._kernel.stream(options["code"], takes_input=options.get("allow_stdin", True)) as events:
            for event in events:
                if isinstance(event, Result):
                    ended = event
                else:
                    self._event(event, request, count, events)
        if not ended.is_error:
            expressions: dict[str, str] = options.get("user_expressions") or {}
            named = {name: self._value(code) for name, code in expressions.items()}
            return {"status": "ok", **count, "user_expressions": named, "payload": []}
        raised: dict[str, Any] = (ended.structured or {}).get("error") or {}
        error = {
            "ename": raised.get("name", ended.reason),
            "evalue": raised.get("value", ended.message),
            "traceback": raised.get("traceback", []),
        }
        self._send("iopub", "error", error, request)
        return {"status": "error", **count, **error}

    def _event(self, event: object, request: Message, count: dict[str, int], events: Any) -> None:
        if isinstance(event, Output):
            self._send("iopub", "stream", {"name": event.stream, "text": event.text}, request)
        elif isinstance(event, ContentBlock) and event.block.get("description") != "stderr":
            self._send("iopub", "display_data", {"data": _forms(event.block), "metadata": {}}, request)
        elif isinstance(event, InputRequested):
            self._send("stdin", "input_request", {"prompt": event.prompt, "password": event.password}, request)
            events.answer(self._lines.get(timeout=ANSWER_SECONDS))

    def _value(self, code: str) -> dict[str, Any]:
        result = self._kernel.run(code)
        if result.is_error:
            raised: dict[str, Any] = (result.structured or {})["error"]
            described = {"ename": raised["name"], "evalue": raised["value"], "traceback": raised["traceback"]}
            return {"status": "error", **described}
        return {"status": "ok", "data": {"text/plain": result.text}, "metadata": {}}


class Manager:
    """Interrupts and ends a kernel."""

    def __init__(self, box: BaseSandbox, kernel: Kernel) -> None:
        self._box = box
        self._kernel = kernel

    def interrupt_kernel(self) -> None:
        """Interrupt what runs."""
        self._kernel.interrupt()

    def shutdown_kernel(self, *, now: bool = False) -> None:
        """End it."""
        self._box.close()


def _forms(block: dict[str, Any]) -> dict[str, Any]:
    image = {block["mimeType"]: block["data"]} if block["type"] == "image" else {"text/plain": block.get("text", "")}
    annotations: dict[str, Any] = block.get("annotations") or {}
    forms: dict[str, Any] = {**image, **annotations}
    return {kind: form for kind, form in forms.items() if form is not None}


def start_new_kernel(**_: object) -> tuple[Manager, Client]:
    """Start a sandbox of the mesh of this machine; return its kernel's manager and client."""
    box = BaseSandbox(sandbox_type=os.environ.get("SUITE_TEMPLATE", "base"), timeout=300)
    box.start()
    kernel = box.kernels.get("default")
    return Manager(box, kernel), Client(kernel)


@contextmanager
def new_kernel(argv: object = None) -> Generator[Client]:
    """Start a kernel for one test."""
    manager, client = start_new_kernel()
    client.parent = manager
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

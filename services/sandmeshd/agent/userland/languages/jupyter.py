"""A Jupyter kernel as a kernel of the sandbox: the program between the agent's frames and jupyter_client.

`python -P __main__.py languages.jupyter FD`: FD is the kernel's channel, and the variable SANDMESH_KERNEL names a
kernel specification of the template or of what was installed in the sandbox. The kernel is a separate process; when
it ends, this one does.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sandmeshd.agent.userland.python import content_blocks, exception_report, kernel_protocol, output

_START_SECONDS: Final = 60
_LOOK_SECONDS: Final = 0.05
_SETUPS: Final = {
    "ir": "; for R take the template languages, or install r-base-core, r-cran-irkernel and jupyter_client",
    "java": "; for Java take the template languages, or install a JDK and `pip install --pre jjava jupyter_client`",
}
"""What adds the kernels that are asked for by the names of their languages."""
_WITHOUT_SOCKETS: Final = {"java"}
"""Programs of kernels whose ZeroMQ has no sockets in the file system: they listen on TCP. The others do not, since
libzmq looks at the machine's interfaces before it listens, which user code may not."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


def run(fds: list[int], site: str) -> None:
    """Serve cells until the agent goes; what keeps the kernel from starting is told as the end of no cell."""
    sys.path.remove(site)
    channel = output.KernelSocket(socket.socket(fileno=os.dup(fds[0])))
    try:
        bridge = _Bridge(channel, *_start(os.environ.pop("SANDMESH_KERNEL")))
    except Exception as error:
        channel.end(kernel_protocol.FAILED, str(error) or type(error).__name__)
        os._exit(1)
    channel.ready()
    while True:
        bridge.serve()


def _start(name: str) -> tuple[Any, Any]:
    try:
        # The template's or the user's own, so that it cannot be an import of ours.
        kernelspec: Any = importlib.import_module("jupyter_client.kernelspec")
        manager: Any = importlib.import_module("jupyter_client.manager")
    except ImportError:
        message = f"kernels of {name!r} need jupyter_client in the template or sandbox: install it"
        raise RuntimeError(message + _SETUPS.get(name, "")) from None
    specifications: Any = kernelspec.KernelSpecManager()
    known: dict[str, str] = specifications.find_kernel_specs()
    if name not in known:
        listed = ", ".join(sorted({"bash", "javascript", "python", "typescript", *known}))
        raise RuntimeError(f"there is no Jupyter kernel {name!r} here: there are {listed}" + _SETUPS.get(name, ""))
    nothing = os.open(os.devnull, os.O_RDWR)
    program = Path(specifications.get_kernel_spec(name).argv[0]).name
    if program in _WITHOUT_SOCKETS:
        # jupyter_client's own look at the machine's interfaces warns.
        warnings.simplefilter("ignore")
        started: Any = manager.KernelManager(kernel_name=name, ip="127.0.0.1")
    else:
        started = manager.KernelManager(
            kernel_name=name, transport="ipc", ip=tempfile.mkdtemp(prefix=".kernel-") + "/s"
        )
    started.start_kernel(stdin=nothing, stdout=nothing, stderr=nothing)
    if started.transport == "ipc":
        threading.Thread(target=name_sockets, args=(started.ip, started.ports), daemon=True).start()
    client: Any = started.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=_START_SECONDS)
    return started, client


def name_sockets(place: str, ports: Sequence[int]) -> None:
    """Link the sockets of kernels that write `:` before the number, as for TCP, to the names that Jupyter uses."""
    missing = [(Path(f"{place}:{port}"), Path(f"{place}-{port}")) for port in ports]
    for _ in range(int(_START_SECONDS / _LOOK_SECONDS)):
        for there, wanted in missing:
            with suppress(FileExistsError):
                if there.exists():
                    wanted.symlink_to(there)
        missing = [pair for pair in missing if not pair[1].exists()]
        if not missing:
            return
        time.sleep(_LOOK_SECONDS)


class _Bridge:
    """Cells go to the kernel, its messages to the agent."""

    def __init__(self, channel: output.KernelSocket, manager: Any, client: Any) -> None:
        self._channel = channel
        self._client = client
        self._manager = manager
        self._process = manager.provisioner.process
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._end_with_kernel, daemon=True).start()

    def serve(self) -> None:
        """Run the next cell."""
        kind, payload, input_fd = self._channel.receive()
        if kind not in {kernel_protocol.RUN, kernel_protocol.RUN_WITH_INPUT}:
            return
        if input_fd is not None:
            sys.stdin = io.TextIOWrapper(io.FileIO(input_fd, "r"))
        reply = self._client.execute_interactive(
            payload.decode(),
            allow_stdin=input_fd is not None,
            output_hook=self._show,
            stdin_hook=self._ask,
        )["content"]
        status = str(reply.get("status"))
        if status == "ok":
            self._channel.end(0, "")
            return
        if status.startswith("abort"):
            # R's kernel is silent about an interrupt.
            reply = {"ename": "Interrupted", "evalue": "the cell was interrupted"}
            self._channel.place(content_blocks.texts(f"{reply['evalue']}\n", "stderr"))
        name, value = str(reply.get("ename") or "error"), str(reply.get("evalue") or "")
        line = f"{name}: {value}".partition("\n")[0]
        self._channel.end(kernel_protocol.FAILED, line, exception_report.encode(name, value, _lines(reply)))

    def _show(self, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream":
            self._write(1 if content["name"] == "stdout" else 2, content["text"])
        elif kind in {"display_data", "update_display_data", "execute_result"}:
            blocks = content_blocks.bundle(content["data"])
            transient: dict[str, Any] = content.get("transient") or {}
            display = transient.get("display_id")
            if display is not None:
                blocks = content_blocks.of_display(blocks, str(display), replaces=kind == "update_display_data")
            self._channel.place(blocks)
        elif kind == "clear_output":
            self._channel.clear(wait=bool(content["wait"]))
        elif kind == "error" and any(_lines(content)):
            self._channel.place(content_blocks.texts("\n".join(_lines(content)) + "\n", "stderr"))

    def _ask(self, message: dict[str, Any]) -> None:
        content = message["content"]
        try:
            self._client.input(self._channel.ask(content["prompt"], password=bool(content["password"])))
        except EOFError:
            self._client.input("")

    def _write(self, fd: int, text: str) -> None:
        self._channel.writing(fd)
        view = memoryview(text.encode("utf-8", "backslashreplace"))
        while view:
            view = view[os.write(fd, view) :]

    def _interrupt(self, number: int, frame: object) -> None:
        # By a signal, or by a message where the kernel's specification says so: a signal would end Java.
        self._manager.interrupt_kernel()

    def _end_with_kernel(self) -> None:
        code = self._process.wait()
        if self._manager.transport == "ipc":
            shutil.rmtree(Path(self._manager.ip).parent, ignore_errors=True)
        os._exit(code if 0 <= code < 256 else 1)


def _lines(content: dict[str, Any]) -> list[str]:
    return [_COLOURS.sub("", str(line)) for line in content.get("traceback", ())]

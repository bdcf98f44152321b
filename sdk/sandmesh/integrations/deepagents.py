"""A sandbox as the backend of a deep agent: `create_deep_agent(model, backend=SandmeshSandbox(box))`.

The package's protocol is `deepagents.backends.sandbox.BaseSandbox`, whose file tools are programs that `execute` runs.
"""

from __future__ import annotations

import asyncio
import posixpath
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sandmesh import Output, Process, Sandbox, SandmeshError
from sandmesh.integrations.versions import framework

with framework("deepagents"):
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox

_MOST_FILE: Final = 256 << 20
_INPUT_CHUNK: Final = 256 * 1024
_FILE_SECONDS: Final = 300.0
# One pipe for both, so that their order is the order in which the command wrote.
_SHELL: Final = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh", "bash", "-c")
_TIMED_OUT_CODE: Final = 124
_SIGNAL_CODE: Final = 128
# The path is their first argument, the most bytes to read the second.
_READ: Final = 'head -c "$2" -- "$1"'
_WRITE: Final = 'mkdir -p -- "${1%/*}/" && cat > "$1"'
# What programs write in the locale C of a path that cannot be used.
_FILE_ERRORS: Final = {
    "Is a directory": "is_directory",
    "No such file": "file_not_found",
    "Directory nonexistent": "file_not_found",
    "Permission denied": "permission_denied",
    "Read-only file system": "permission_denied",
    "Not a directory": "invalid_path",
    "File exists": "invalid_path",
}


@dataclass(frozen=True)
class _Ended:
    code: int | None
    stdout: bytes
    stderr: bytes
    more: bool
    message: str


class _Running:
    """The process of a call, which another thread may end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._is_ended = False

    def take(self, process: Process) -> None:
        """Note the process of the call; it is ended if the call was cancelled before."""
        with self._lock:
            self._process = process
            is_ended = self._is_ended
        if is_ended:
            process.kill()

    def end(self) -> None:
        """End the process."""
        with self._lock:
            self._is_ended = True
            process = self._process
        if process is not None:
            process.kill()


class SandmeshSandbox(BaseSandbox):
    """Commands and files of a started sandbox, which its owner ends.

    Args:
        box: The sandbox.
        cwd: Where commands run.
        timeout: The seconds of a command for which the agent names none.
        most_output: The most bytes of a command's output that are returned; more is cut, and marked as truncated.
    """

    def __init__(
        self, box: Sandbox, *, cwd: str = "/workspace", timeout: float = 1800, most_output: int = 16 << 20
    ) -> None:
        self._box = box
        self._cwd = cwd
        self._timeout = timeout
        self._most_output = most_output

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._box.sandbox_id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command of bash; its output is standard output and error in the order in which they were written.

        Raises:
            ValueError: The timeout is negative; 0 is the sandbox's own bound.
            SandmeshError: The sandbox is gone.
        """
        return self._execute(command, timeout, _Running())

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command as `execute` does; when the caller is cancelled, the command is ended."""
        running = _Running()
        work = asyncio.create_task(asyncio.to_thread(self._execute, command, timeout, running))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.to_thread(running.end)
            await asyncio.wait([work])
            raise

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, whose directories are made; each has its own error, if any.

        Raises:
            SandmeshError: The sandbox is gone.
        """
        return [FileUploadResponse(path, self._write(path, content)) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files of at most 256 MiB; each has its own error, if any.

        Raises:
            SandmeshError: The sandbox is gone.
        """
        return [self._read(path) for path in paths]

    def _execute(self, command: str, timeout: int | None, running: _Running) -> ExecuteResponse:
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout must be 0 or more seconds, not {timeout}")
        seconds = self._timeout if timeout is None else timeout
        ended = self._run([*_SHELL, command], seconds or None, self._most_output, running=running)
        output = ended.stdout.decode(errors="replace")
        if ended.message:
            output += f"{'' if not output or output.endswith(chr(10)) else chr(10)}{ended.message}"
        return ExecuteResponse(output=output, exit_code=ended.code, truncated=ended.more)

    def _write(self, path: str, content: bytes) -> str | None:
        if not posixpath.isabs(path):
            return "invalid_path"
        ended = self._run(["/bin/sh", "-c", _WRITE, "sh", path], _FILE_SECONDS, _INPUT_CHUNK, data=content)
        return _file_error(ended)

    def _read(self, path: str) -> FileDownloadResponse:
        if not posixpath.isabs(path):
            return FileDownloadResponse(path, error="invalid_path")
        ended = self._run(["/bin/sh", "-c", _READ, "sh", path, str(_MOST_FILE + 1)], _FILE_SECONDS, _MOST_FILE)
        error = f"it is larger than {_MOST_FILE} bytes" if ended.more else _file_error(ended)
        return FileDownloadResponse(path, error=error) if error else FileDownloadResponse(path, content=ended.stdout)

    def _run(
        self,
        arguments: Sequence[str],
        seconds: float | None,
        most: int,
        *,
        data: bytes = b"",
        running: _Running | None = None,
    ) -> _Ended:
        written, more = {"stdout": bytearray(), "stderr": bytearray()}, False
        env = {"LC_ALL": "C"} if running is None else None
        with self._box.processes.start(arguments, cwd=self._cwd, env=env, timeout=seconds) as process:
            if running is not None:
                running.take(process)
            with suppress(SandmeshError):  # Ending without reading all of the input is not a failure.
                for start in range(0, len(data), _INPUT_CHUNK):
                    process.write(data[start : start + _INPUT_CHUNK])
                process.close_stdin()
            for event in process:
                if isinstance(event, Output):
                    stream = written[event.stream]
                    more = more or len(stream) + len(event.data) > most
                    stream += event.data[: most - len(stream)]
            result = process.wait()
        code, message = result.exit_code, ""
        if result.reason == "TIMED_OUT":
            code, message = _TIMED_OUT_CODE, result.message
        elif result.signal is not None:
            code = _SIGNAL_CODE + result.signal
        elif code is None:
            message = result.message
        return _Ended(code, bytes(written["stdout"]), bytes(written["stderr"]), more, message)


def _file_error(ended: _Ended) -> str | None:
    if ended.code == 0:
        return None
    said = ended.stderr.decode(errors="replace").strip() or ended.message
    return next((error for words, error in _FILE_ERRORS.items() if words in said), said)

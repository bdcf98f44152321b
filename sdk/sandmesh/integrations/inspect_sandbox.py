"""A sandbox provider of Inspect (inspect_ai): `Task(..., sandbox="sandmesh")`.

Inspect finds it by the entry point group `inspect_ai`, and calls the methods of `SandboxEnvironment`, which its page on
extensions specifies: https://inspect.aisi.org.uk/extensions.html#sec-sandbox-environment-extensions
"""

from __future__ import annotations

import asyncio
import errno
import posixpath
import stat
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar, cast, overload

from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from sandmesh import MeshAsync, ProcessAsync, SandboxAsync, SandmeshError
from sandmesh.errors import CapabilityMissing, DeadlineExceeded, InvalidArgument, NotFound, SandboxLost
from sandmesh.events import Output
from sandmesh.events import Result as CallResult
from sandmesh.integrations.versions import framework

with framework("inspect-ai"):
    from inspect_ai.util import (
        ExecResult,
        OutputLimitExceededError,
        SandboxConnection,
        SandboxEnvironment,
        SandboxEnvironmentConfigType,
        SandboxEnvironmentLimits,
        SandboxUnavailableError,
        SandboxUserUnsupportedError,
        sandboxenv,
    )

R = TypeVar("R")

OPERATION_SECONDS = 300.0
INPUT_CHUNK = 256 * 1024
TASK_LABEL = "inspect-task"
# What shells report of a program that is missing, and of one that a signal ended.
NOT_FOUND_CODE = 127
SIGNAL_CODE = 128

WORKSPACE = "/workspace"

# The file is their first argument, the most bytes to read their second.
_READ = 'head -c "$2" -- "$1"'
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'
# What programs say in the locale C of why a file cannot be used.
_ERRNOS = {
    "Is a directory": errno.EISDIR,
    "No such file": errno.ENOENT,
    "Permission denied": errno.EACCES,
    "Not a directory": errno.ENOTDIR,
    "Read-only file system": errno.EROFS,
    "No space left": errno.ENOSPC,
    "Directory nonexistent": errno.ENOENT,
}


class SandmeshSandboxConfig(BaseModel):
    """The sandboxes of a task: `Task(..., sandbox=SandboxEnvironmentSpec("sandmesh", SandmeshSandboxConfig(...)))`.

    Every field but `base_url` and `bearer_token` is an argument of `sandmesh.SandboxAsync` of the same name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sandbox_type: str = "base"
    image: str | None = None
    """The image that is its root; None: the type's own root."""
    root: bool | None = None
    """Whether its programs are root in that image; None: as its USER says."""
    network: str | tuple[str, ...] = "none"
    limits: dict[str, Any] | None = None
    env: dict[str, str] | None = None
    base_url: str | None = None
    """The mesh's address; None: SANDMESH_ADDRESS, else this user's local mesh, else a private one."""
    bearer_token: str | None = None


@sandboxenv(name="sandmesh")
class SandmeshSandboxEnvironment(SandboxEnvironment):
    """A sandbox of a mesh for each sample; relative paths are below its workspace."""

    def __init__(self, box: SandboxAsync) -> None:
        super().__init__()
        self._box = box

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Return how many samples may have a sandbox simultaneously: no limit, since the mesh queues creates."""
        return None

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Read a configuration that Inspect saved with a log."""
        return SandmeshSandboxConfig(**config)

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Create the sample's sandbox."""
        settings = _read_config(config)
        box = SandboxAsync(
            base_url=settings.base_url,
            bearer_token=settings.bearer_token,
            sandbox_type=settings.sandbox_type,
            network=list(settings.network) if isinstance(settings.network, tuple) else cast("Any", settings.network),
            limits=settings.limits,
            env=settings.env,
            image=settings.image,
            root=settings.root,
            labels={TASK_LABEL: task_name[:255]},
        )
        return {"default": cls(await box.start())}

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Release the sample's sandbox."""
        for environment in environments.values():
            with suppress(SandmeshError):  # Its lease ends it then.
                await environment.as_type(SandmeshSandboxEnvironment)._box.close()  # noqa: SLF001 - its own class

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:  # noqa: A002 - Inspect's name
        """Release what interrupted runs left: the sandbox of an id, or all those of Inspect's tasks."""
        async with MeshAsync() as mesh:
            if id is not None:
                await mesh.sandboxes.kill(id)
                return
            for sandbox in await mesh.sandboxes.list():
                if sandbox.in_use and TASK_LABEL in sandbox.labels:
                    with suppress(NotFound):
                        await mesh.sandboxes.kill(sandbox.sandbox_id)

    @override
    async def exec(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]  # Inspect names what follows
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        **_of_local_sandboxes: bool,
    ) -> ExecResult[str]:
        """Run a program and return its output; what else Inspect names is for sandboxes on this machine.

        Raises:
            SandboxUserUnsupportedError: `user` is not the sandbox's own.
            SandboxUnavailableError: The sandbox is gone.
            TimeoutError: It was killed after `timeout` seconds.
            PermissionError: It may not be executed.
            OutputLimitExceededError: It wrote more than Inspect reads.
        """
        try:
            process = await _translated(self._box.processes.start(cmd, cwd=cwd, env=env, user=user, timeout=timeout))
        except CapabilityMissing as error:
            raise SandboxUserUnsupportedError(error.message) from error
        async with process:
            feeding = asyncio.create_task(_feed(process, input))
            try:
                written = await _translated(_collect(process, SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE))
                ended = await _translated(process.wait())
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
        return _result(cmd, ended, written)

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file; its directories are made.

        Raises:
            OSError: It cannot be written, as the subclass of its errno.
        """
        data = contents.encode() if isinstance(contents, str) else contents
        if _is_outside(file):
            await self._run(_WRITE, file, data)
            return
        with suppress(FileNotFoundError):
            there = await _translated(self._box.fs.stat(file))
            if there.is_file and not there.mode & stat.S_IWUSR:
                # A write replaces the file, for which its directory's permissions would suffice.
                raise PermissionError(errno.EACCES, "its mode forbids writing", file)
        await _translated(self._box.fs.write(file, data))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file as UTF-8 text, line ends as they are, or as bytes.

        Raises:
            OSError: It cannot be read, as the subclass of its errno.
            UnicodeDecodeError: It is not UTF-8.
            OutputLimitExceededError: It is larger than Inspect reads.
        """
        largest = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        if _is_outside(file):
            data = await self._run(_READ, file, None, largest + 1)
        else:
            data = await _translated(self._box.fs.read(file, "bytes", length=largest + 1))
        if len(data) > largest:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    async def _run(self, script: str, file: str, data: bytes | None, largest: int = 0) -> bytes:
        """Run a script on a file that the file tools, which stay in the workspace, do not reach."""
        command = ["sh", "-c", script, "sh", file, str(largest)]
        async with await _translated(self._box.processes.start(command, env={"LC_ALL": "C"})) as process:
            feeding = asyncio.create_task(_feed(process, data))
            try:
                written = await _translated(_collect(process, max(largest, INPUT_CHUNK)))
                ended = await _translated(process.wait())
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
        if ended.is_error:
            said = written["stderr"].decode(errors="replace").strip()
            number = next((number for words, number in _ERRNOS.items() if words in said), errno.EIO)
            raise OSError(number, said or ended.message, file)
        return written["stdout"]

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Return the command that opens a shell in the sandbox.

        Raises:
            ConnectionError: The sandbox is gone.
        """
        if await self._box.get_status() != "ready":
            raise ConnectionError(f"sandbox {self._box.sandbox_id} is {await self._box.get_status()}")
        command = f"sandmesh shell {self._box.sandbox_id}"
        return SandboxConnection(type="sandmesh", command=command, container=self._box.sandbox_id)


def _read_config(config: SandboxEnvironmentConfigType | None) -> SandmeshSandboxConfig:
    if config is None or isinstance(config, SandmeshSandboxConfig):
        return config or SandmeshSandboxConfig()
    if isinstance(config, str):
        return SandmeshSandboxConfig(sandbox_type=config)
    raise InvalidArgument(f"sandmesh takes a SandmeshSandboxConfig or the name of a type, not {type(config).__name__}")


def _is_outside(file: str) -> bool:
    path = PurePosixPath(posixpath.normpath(file))
    return path.is_absolute() and not path.is_relative_to(WORKSPACE)


async def _translated(work: Awaitable[R]) -> R:
    """Wait for work, whose errors of the mesh become those that Inspect knows."""
    try:
        return await work
    except DeadlineExceeded as error:
        raise TimeoutError(error.message) from error
    except SandboxLost as error:
        raise SandboxUnavailableError(error.message) from error


async def _feed(process: ProcessAsync, data: str | bytes | None) -> None:
    raw = memoryview(data.encode() if isinstance(data, str) else data or b"")
    # Ending without reading all of the input is not a failure.
    with suppress(SandmeshError):
        for start in range(0, len(raw), INPUT_CHUNK):
            await process.write(bytes(raw[start : start + INPUT_CHUNK]))
        await process.close_stdin()


async def _collect(process: ProcessAsync, largest: int) -> Mapping[str, bytes]:
    written = {"stdout": bytearray(), "stderr": bytearray()}
    async for event in process:
        if not isinstance(event, Output):
            continue
        stream = written[event.stream]
        stream += event.data
        if len(stream) > largest:
            kept = bytes(stream[:largest]).decode(errors="replace")
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, kept)
    return {name: bytes(data) for name, data in written.items()}


def _result(cmd: Sequence[str], ended: CallResult, written: Mapping[str, bytes]) -> ExecResult[str]:
    if ended.reason == "TIMED_OUT":
        raise TimeoutError(f"{cmd[0]} was killed: {ended.message}")
    stderr = written["stderr"].decode(errors="replace")
    code = ended.exit_code
    if code is None and ended.signal is None:
        # It was never started.
        if "Permission denied" in ended.message:
            raise PermissionError(errno.EACCES, ended.message, cmd[0])
        code, stderr = NOT_FOUND_CODE, stderr + ended.message
    elif code is None:
        code = SIGNAL_CODE + (ended.signal or 0)
    return ExecResult(code == 0, code, written["stdout"].decode(errors="replace"), stderr)

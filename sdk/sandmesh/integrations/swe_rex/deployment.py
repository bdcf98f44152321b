"""A deployment and a runtime of SWE-ReX (swerex): sessions of bash, commands and files in a sandbox.

They have the methods of `swerex.deployment.abstract.AbstractDeployment` and `swerex.runtime.abstract.AbstractRuntime`:
https://swe-rex.com/latest/. Nothing of the package runs inside the sandbox.
"""

from __future__ import annotations

import asyncio
import io
import logging
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from sandmesh import SandboxAsync, SandmeshError
from sandmesh.integrations.programs import run_program, run_script, upload
from sandmesh.integrations.swe_rex.session import BashSession
from sandmesh.integrations.versions import framework

with framework("swe-rex"):
    from swerex.deployment.abstract import AbstractDeployment
    from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
    from swerex.exceptions import (
        BashIncorrectSyntaxError,
        CommandTimeoutError,
        DeploymentNotStartedError,
        NonZeroExitCodeError,
        SessionDoesNotExistError,
        SessionExistsError,
    )
    from swerex.runtime.abstract import (
        AbstractRuntime,
        BashAction,
        BashInterruptAction,
        BashObservation,
        CloseBashSessionRequest,
        CloseBashSessionResponse,
        CloseResponse,
        Command,
        CommandResponse,
        CreateBashSessionRequest,
        CreateBashSessionResponse,
        IsAliveResponse,
        ReadFileRequest,
        ReadFileResponse,
        UploadRequest,
        UploadResponse,
        WriteFileRequest,
        WriteFileResponse,
    )
    from swerex.utils.log import get_logger

_SYNTAX_SECONDS: Final = 10.0
_JOINED: Final = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")
_WRITE: Final = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'


class SandmeshDeploymentConfig(BaseModel):
    """The sandbox of a deployment; its fields are arguments of `sandmesh.SandboxAsync` of the same names."""

    model_config = ConfigDict(extra="forbid")

    sandbox_type: str = "base"
    image: str | None = None
    """The image that is its root; None: the type's own root."""
    root: bool | None = None
    """Whether its programs are root in that image; None: as its USER says."""
    sandbox_id: str | None = None
    """An existing sandbox, which is kept; None: a new one."""
    network: str | list[str] = "none"
    limits: dict[str, Any] | None = None
    env: dict[str, str] | None = None
    base_url: str | None = None
    """The mesh's address; None: SANDMESH_ADDRESS, else this user's local mesh, else a private one."""
    bearer_token: str | None = None

    def get_deployment(self) -> SandmeshDeployment:
        """Return a deployment with this configuration."""
        return SandmeshDeployment.from_config(self)


class SandmeshDeployment(AbstractDeployment):
    """A sandbox, from `start` to `stop`."""

    def __init__(self, *, logger: logging.Logger | None = None, **config: Any) -> None:
        self._config = SandmeshDeploymentConfig(**config)
        self._runtime: SandmeshRuntime | None = None
        self._hooks = CombinedDeploymentHook()
        self.logger = logger or get_logger("rex-deploy")

    @classmethod
    def from_config(cls, config: SandmeshDeploymentConfig) -> SandmeshDeployment:
        """Return a deployment with a configuration."""
        return cls(**config.model_dump())

    def add_hook(self, hook: DeploymentHook) -> None:
        """Add what is told of each step."""
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Return whether the sandbox is ready.

        Raises:
            DeploymentNotStartedError: It was not started.
        """
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Create the sandbox; a second call changes nothing.

        Raises:
            SandmeshError: There is no mesh, or no sandbox could be created.
        """
        if self._runtime is not None:
            return
        self._hooks.on_custom_step("Creating sandbox")
        config = self._config
        network: Any = config.network
        box = SandboxAsync(
            sandbox_id=config.sandbox_id,
            base_url=config.base_url,
            bearer_token=config.bearer_token,
            sandbox_type=config.sandbox_type,
            network=None if config.sandbox_id else network,
            limits=config.limits,
            env=config.env,
            image=config.image,
            root=config.root,
        )
        self._runtime = SandmeshRuntime(await box.start(), logger=self.logger)
        self._hooks.on_custom_step("Sandbox is ready")

    async def stop(self) -> None:
        """Release the sandbox, if it is this deployment's own; calling it twice changes nothing."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()
            with suppress(SandmeshError):  # Its lease ends it then.
                await runtime.box.close()

    @property
    def runtime(self) -> SandmeshRuntime:
        """The sandbox's runtime.

        Raises:
            DeploymentNotStartedError: It was not started.
        """
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime


class SandmeshRuntime(AbstractRuntime):
    """What runs in a sandbox. Failures of the mesh are `SandmeshError`s, whose `fault` says whose they are."""

    def __init__(self, box: SandboxAsync, *, logger: logging.Logger | None = None) -> None:
        self.box = box
        self.logger = logger or get_logger("rex-runtime")
        self._sessions: dict[str, BashSession] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Return whether the sandbox is ready."""
        try:
            async with asyncio.timeout(timeout):
                status = await self.box.get_status()
        except (SandmeshError, TimeoutError) as error:
            return IsAliveResponse(is_alive=False, message=str(error) or "it did not answer in time")
        return IsAliveResponse(is_alive=status == "ready", message="" if status == "ready" else f"it is {status}")

    async def create_session(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        """Start a shell with a terminal.

        Raises:
            SessionExistsError: There is one of that name.
            CommandTimeoutError: It was not ready in time.
        """
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session} already exists")
        session = await BashSession.open(self.box)
        self._sessions[request.session] = session
        try:
            sources = [f"source {path}" for path in request.startup_source]
            output = await session.prepare(sources, request.startup_timeout)
        except BaseException:
            await self.close_session(CloseBashSessionRequest(session=request.session))
            raise
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: BashAction | BashInterruptAction) -> BashObservation:
        """Run a command in a shell, or interrupt the one that runs there.

        Raises:
            SessionDoesNotExistError: There is no such session.
            BashIncorrectSyntaxError: It is not a command of bash.
            CommandTimeoutError: It did not end in time; it goes on, and can be interrupted.
            NonZeroExitCodeError: It failed, and is checked.
        """
        session = self._sessions.get(action.session)
        if session is None:
            raise SessionDoesNotExistError(f"session {action.session!r} does not exist")
        if isinstance(action, BashInterruptAction):
            return await session.interrupt(action)
        if action.is_interactive_command or action.is_interactive_quit:
            return await session.converse(action)
        await self._check_syntax(action.command)
        file = f"/tmp/.sandmesh-{secrets.token_hex(8)}"  # noqa: S108 - inside the sandbox
        await self._write(file, action.command.encode() + b"\n")
        observation = await session.run(action, file)
        if action.check == "raise" and observation.exit_code:
            raise NonZeroExitCodeError(_failed(action, observation.exit_code, f"output:\n{observation.output!r}"))
        return observation

    async def close_session(self, request: CloseBashSessionRequest) -> CloseBashSessionResponse:
        """End a shell.

        Raises:
            SessionDoesNotExistError: There is no such session.
        """
        session = self._sessions.pop(request.session, None)
        if session is None:
            raise SessionDoesNotExistError(f"session {request.session!r} does not exist")
        await session.close()
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        """Run a program; `env` is on top of the sandbox's own variables.

        Raises:
            CommandTimeoutError: It was killed after its time.
            NonZeroExitCodeError: It failed, and is checked.
            OSError: It cannot be started; FileNotFoundError: there is no such program.
        """
        words = [command.command] if isinstance(command.command, str) else list(command.command)
        arguments = ["/bin/sh", "-c", *words] if command.shell else words
        if command.merge_output_streams:
            arguments = [*_JOINED, *arguments]
        done = await run_program(self.box, arguments, cwd=command.cwd, env=command.env, timeout=command.timeout)
        result = done.result
        if result.reason == "TIMED_OUT":
            raise CommandTimeoutError(f"Timeout ({command.timeout}s) exceeded while running command")
        code = result.exit_code if result.signal is None else -result.signal
        if code is None:
            kind = FileNotFoundError if "No such file" in result.message else OSError
            raise kind(result.message)
        out, err = (stream.decode(errors="backslashreplace") for stream in (done.stdout, done.stderr))
        if command.check and code != 0:
            raise NonZeroExitCodeError(_failed(command, code, f"stdout:\n{out!r}\nstderr:\n{err!r}"))
        return CommandResponse(stdout=out, stderr=err, exit_code=code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        """Read a file as text.

        Raises:
            OSError: It cannot be read.
            UnicodeDecodeError: It is not text of the encoding.
        """
        data = await run_script(self.box, 'exec cat -- "$1"', request.path)
        with io.TextIOWrapper(io.BytesIO(data), request.encoding or "utf-8", request.errors) as text:
            return ReadFileResponse(content=text.read())

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        """Write a file; its directories are made.

        Raises:
            OSError: It cannot be written.
        """
        await self._write(request.path, request.content.encode())
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        """Copy a file or a directory of this machine into the sandbox.

        Raises:
            OSError: It cannot be read here, or not be written there.
        """
        await upload(self.box, Path(request.source_path), request.target_path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        """End all shells; the sandbox stays until its deployment stops."""
        for name in list(self._sessions):
            with suppress(SandmeshError):  # The sandbox may be gone.
                await self.close_session(CloseBashSessionRequest(session=name))
        return CloseResponse()

    async def _check_syntax(self, text: str) -> None:
        command = Command(command=["bash", "-n", "-c", text], timeout=_SYNTAX_SECONDS)
        checked = await self.execute(command)
        if checked.exit_code:
            about = {"bash_stdout": checked.stdout, "bash_stderr": checked.stderr}
            raise BashIncorrectSyntaxError(f"bash cannot parse {text!r}: {checked.stderr.strip()}", extra_info=about)

    async def _write(self, path: str, data: bytes) -> None:
        await run_script(self.box, _WRITE, path, data=data)


def _failed(what: BashAction | Command, code: int, shown: str) -> str:
    message = f"Command {what.command!r} failed with exit code {code}. Here is the {shown}"
    return f"{what.error_msg}: {message}" if what.error_msg else message

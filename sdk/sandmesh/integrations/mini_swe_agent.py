"""An environment of mini-swe-agent: `--environment-class sandmesh.integrations.mini_swe_agent.SandmeshEnvironment`.

The package's protocol is `minisweagent.Environment`: https://mini-swe-agent.com/latest/advanced/environments/.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from sandmesh import Output, Sandbox, SandmeshError
from sandmesh.integrations.versions import framework
from sandmesh.replies import REPLY_CHARACTERS, shorten_text

with framework("mini-swe-agent"):
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge

_SUBMIT: Final = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_SYSTEM: Final = ("system", "node", "release", "version", "machine")
# An image need not have Python.
_DESCRIBE: Final = "for one in s n r v m; do uname -$one; done"
_MOST_OUTPUT: Final = 16 << 20
# One pipe for both, so that their order is the order in which the command wrote.
_JOINED: Final = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")


class SandmeshEnvironmentConfig(BaseModel):
    """The sandbox of an agent; what is not about commands is an argument of `sandmesh.Sandbox` of the same name."""

    model_config = ConfigDict(extra="forbid")

    cwd: str = "/workspace"
    """Where commands run."""
    env: dict[str, str] = {}
    """Environment variables of commands."""
    timeout: int = 30
    """The seconds of a command."""
    interpreter: list[str] = ["bash", "-lc"]
    """The program that a command is the last argument of."""
    sandbox_type: str = "base"
    image: str | None = None
    """The image that is its root; None: the type's own root."""
    root: bool | None = None
    """Whether its programs are root in that image; None: as its USER says."""
    sandbox_id: str | None = None
    """An existing sandbox, which is kept; None: a new one."""
    reply_characters: int = Field(default=REPLY_CHARACTERS, ge=1)
    """The most characters of a command's output that the agent gets."""
    network: str | list[str] = "none"
    limits: dict[str, Any] | None = None
    base_url: str | None = None
    """The mesh's address; None: SANDMESH_ADDRESS, else this user's local mesh, else a private one."""
    bearer_token: str | None = None


class SandmeshEnvironment:
    """A sandbox in which an agent's commands run, until `cleanup`, or the end of the program, releases it.

    Raises:
        SandmeshError: There is no mesh, or no sandbox could be created.
    """

    def __init__(self, *, config_class: type[SandmeshEnvironmentConfig] = SandmeshEnvironmentConfig, **kwargs: Any):
        self.config = config_class(**kwargs)
        config = self.config
        network: Any = config.network
        self._box = Sandbox(
            sandbox_id=config.sandbox_id,
            base_url=config.base_url,
            bearer_token=config.bearer_token,
            sandbox_type=config.sandbox_type,
            network=None if config.sandbox_id else network,
            limits=config.limits,
            image=config.image,
            root=config.root,
        ).start()
        self._system: Mapping[str, str] | None = None

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a command; its output is standard output and error in the order in which they were written.

        Raises:
            Submitted: The command wrote the line that ends the task.
        """
        try:
            output = self._run(str(action.get("command", "")), cwd or self.config.cwd, timeout or self.config.timeout)
        except SandmeshError as error:
            extra = {"exception_type": type(error).__name__, "exception": str(error), "fault": error.fault}
            output = {"output": "", "returncode": -1, "exception_info": _explain(error.message), "extra": extra}
        _check_finished(output)
        return {**output, "output": shorten_text(str(output["output"]), self.config.reply_characters)}

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the configuration and the sandbox's system, for the prompts of an agent."""
        if self._system is None:
            described = self._run(_DESCRIBE, self.config.cwd, self.config.timeout)
            self._system = dict(zip(_SYSTEM, described["output"].splitlines(), strict=False))
        return _merged(self._shown(), dict(self._system or {}), kwargs)

    def serialize(self) -> dict[str, Any]:
        """Return what a trajectory keeps of it, without the token."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self._shown(), "environment_type": kind, "sandbox_id": self._box.sandbox_id}
        return {"info": {"config": config}}

    def cleanup(self) -> None:
        """Release the sandbox, if it is this environment's own; calling it twice changes nothing."""
        with suppress(SandmeshError):  # Its lease ends it then.
            self._box.close()

    def _shown(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json", exclude={"bearer_token"})

    def _run(self, command: str, cwd: str, seconds: float) -> dict[str, Any]:
        arguments = [*_JOINED, *self.config.interpreter, command]
        written = bytearray()
        with self._box.processes.start(arguments, cwd=cwd, env=self.config.env, timeout=seconds) as process:
            process.close_stdin()
            for event in process:
                if isinstance(event, Output):
                    written += event.data[: _MOST_OUTPUT - len(written)]
            ended = process.wait()
        text = written.decode("utf-8", "replace")
        code = ended.exit_code if ended.signal is None else -ended.signal
        if ended.reason == "TIMED_OUT" or code is None:
            extra = {"exception_type": ended.reason, "exception": ended.message, "fault": ended.fault}
            return {"output": text, "returncode": -1, "exception_info": _explain(ended.message), "extra": extra}
        return {"output": text, "returncode": code, "exception_info": ""}


def _explain(message: str) -> str:
    return f"An error occurred while executing the command: {message}"


def _merged(*parts: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = recursive_merge(*parts)
    return merged


def _check_finished(output: Mapping[str, Any]) -> None:
    first, _, rest = str(output["output"]).lstrip().partition("\n")
    if first.strip() == _SUBMIT and output["returncode"] == 0:
        extra = {"exit_status": "Submitted", "submission": rest}
        raise Submitted({"role": "exit", "content": rest, "extra": extra})

"""OpenEnv: a provider that runs an environment's server in a sandbox, and an environment in which code is run.

The package's interfaces are `openenv.core.containers.runtime.ContainerProvider` and `openenv.core.env_server`'s
`Environment`. See https://github.com/meta-pytorch/OpenEnv.
"""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from sandmesh import BaseSandbox, Process, SandmeshError
from sandmesh._client.sync import run
from sandmesh.integrations.versions import framework
from sandmesh.sandbox.tools.reply_files import ReplyFiles

with framework("openenv-core"):
    from openenv.core.containers.runtime import ContainerProvider
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

PORT: Final = 8000
"""Where servers of OpenEnv listen."""
_EXPOSED_SECONDS: Final = 86_400.0
_POLL_SECONDS: Final = 0.1


class SandmeshProvider(ContainerProvider):
    """Runs one environment's server in a sandbox.

    `command` is its program, as ["uvicorn", "server.app:app", "--port", "8000"]; `options` are arguments of
    `sandmesh.Sandbox`, as `base_url`, `network` and `limits`. The mesh serves HTTP (`SANDMESH_HTTP_LISTEN`).
    """

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._command = list(command)
        self._options = options
        self._box: BaseSandbox | None = None
        self._server: Process | None = None

    def start_container(
        self, image: str, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str:
        """Start the server in a sandbox of the type `image`, where it listens at `port` (8000), and return its URL.

        Raises:
            RuntimeError: One runs already, or the sandbox could not be created.
        """
        if self._box is not None:
            raise RuntimeError("the provider runs a server already: stop it first, or use another provider")
        try:
            self._box = BaseSandbox(sandbox_type=image, **{**self._options, **kwargs}).start()
            self._server = self._box.processes.start(self._command, env=env_vars or {})
            url: str = self._box.expose(port or PORT, ttl=_EXPOSED_SECONDS).url
        except SandmeshError as error:
            self.stop_container()
            raise RuntimeError(f"no sandbox for {image}: {error}") from error
        return url.rstrip("/")

    def stop_container(self) -> None:
        """End the server and its sandbox; without one nothing happens."""
        box, self._box, self._server = self._box, None, None
        if box is not None:
            box.close()

    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None:
        """Wait until the server answers at /health.

        Raises:
            TimeoutError: It does not within the time.
            RuntimeError: It has ended; the message has the last of its output.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if _answers(f"{base_url}/health"):
                return
            self._check_running()
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"the server at {base_url} did not answer within {timeout_s:g} s")

    def _check_running(self) -> None:
        if self._server is None:
            raise RuntimeError("no server runs: start it first")
        if self._server.result is not None:
            raise RuntimeError(f"the server ended: {self._server.result.message}")


class CodeAction(Action):
    """Code to run in the environment's sandbox."""

    code: str
    language: str = "python"


class CodeObservation(Observation):
    """What code printed, displayed and raised; `fault` is empty, "task", "limit" or "infra"."""

    text: str = ""
    is_error: bool = False
    fault: str = ""


class CodeState(State):
    """The episode, and its sandbox."""

    sandbox_id: str = ""


class CodingEnvironment(Environment[CodeAction, CodeObservation, CodeState]):
    """An environment in which code is run: each episode has its own sandbox. `options` are those of a sandbox."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, seconds: float = 60.0, **options: Any) -> None:
        super().__init__()
        self._seconds = seconds
        self._options: dict[str, Any] = {"network": "none", **options}
        self._box: BaseSandbox | None = None
        self._replies: ReplyFiles | None = None
        self._state = CodeState()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> CodeObservation:
        """Begin an episode in a new sandbox; `seed` is that of Python's `random`."""
        self.close()
        self._box = BaseSandbox(**self._options).start()
        self._replies = ReplyFiles(self._box.twin)
        self._state = CodeState(episode_id=episode_id or str(uuid4()), sandbox_id=self._box.sandbox_id)
        if seed is not None:
            self._box.run_code(f"import random; random.seed({int(seed)})")
        return CodeObservation()

    def step(self, action: CodeAction, timeout_s: float | None = None, **kwargs: Any) -> CodeObservation:
        """Run code; variables stay until the next reset. A failure of the mesh ends the episode.

        Raises:
            RuntimeError: There was no reset.
        """
        if self._box is None or self._replies is None:
            raise RuntimeError("call reset first")
        self._state.step_count += 1
        try:
            result = self._box.run_code(action.code, action.language, timeout_s or self._seconds)
        except SandmeshError as error:
            return CodeObservation(done=True, text=error.message, is_error=True, fault=error.fault)
        shown = run("ReplyFiles", self._replies.shorten(result))
        return CodeObservation(text=shown.text, is_error=result.is_error, fault=result.fault or "", reward=0.0)

    @property
    def state(self) -> CodeState:
        """The episode, and its sandbox."""
        return self._state

    def close(self) -> None:
        """End the episode's sandbox."""
        box, self._box = self._box, None
        if box is not None:
            box.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - of a mesh's own
            return bool(response.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False

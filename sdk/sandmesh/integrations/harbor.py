"""An environment of Harbor: `harbor run --env sandmesh.integrations.harbor:SandmeshEnvironment`.

The package's interface is `harbor.environments.base.BaseEnvironment`: https://www.harborframework.com/docs. Nothing of
the package runs in the sandbox.
"""

from __future__ import annotations

import asyncio
import io
import posixpath
import tarfile
from pathlib import Path
from typing import Any, Final

from sandmesh import Image, SandboxAsync, SandmeshError
from sandmesh.errors import CapabilityMissing, InvalidArgument, TemplateBuildFailed, TemplateNotFound
from sandmesh.integrations.dockerfiles import Build, Copy, DockerfileRefused, Run
from sandmesh.integrations.harbor_sandbox import HarborSandboxAsync
from sandmesh.integrations.programs import Ended, run_program, run_script, upload
from sandmesh.integrations.versions import framework

with framework("harbor"):
    from harbor.environments.base import (
        BaseEnvironment,
        ExecResult,
        SandboxBuildFailedError,
        transfer_tar_filter,
    )
    from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
    from harbor.environments.definition import require_agent_environment_definition, should_use_prebuilt_docker_image
    from harbor.models.task.config import NetworkMode
    from harbor.models.trial.config import ResourceMode

_OWN_TYPE: Final = "harbor"
_WORKSPACE: Final = "/workspace"
_SESSION_LABEL: Final = "harbor-session"
# A sandbox has one user; what Harbor does as root is done by it.
_USERS: Final = frozenset({"root", "0", "sandbox", "1000"})
_SIGNAL_CODE: Final = 128
_TAIL: Final = 2000


class SandmeshEnvironment(BaseEnvironment):
    """A sandbox of a mesh for each environment of a trial, the agent's and a separate verifier's.

    With `images` a task's `docker_image`, or what its Dockerfile makes, is the sandbox's root, with root inside. Else
    `sandbox_type` is the type of the sandbox, by default what the task has as its `docker_image`, else "harbor", and a
    task's Dockerfile is carried out in the sandbox, by its only user, in place of an image: see `dockerfiles`. The
    options are those of `--ek NAME=VALUE`; without a `base_url` the mesh is the one at SANDMESH_ADDRESS, else this
    user's, else a private one.
    """

    def __init__(
        self,
        *args: Any,
        sandbox_type: str | None = None,
        base_url: str | None = None,
        bearer_token: str | None = None,
        images: bool = False,
        **kwargs: Any,
    ) -> None:
        self._sandbox_type = sandbox_type
        self._images = str(images).lower() in ("true", "1", "yes")
        self._mesh = {"base_url": base_url, "bearer_token": bearer_token}
        self._box: SandboxAsync | None = None
        self._workdir: str | None = None
        self._image_env: dict[str, str] = {}
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """Return the name of this type of environments."""
        return "sandmesh"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What a sandbox enforces: no network, or one with named hosts; it stays as it was at the start."""
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Return which resources are limited; a node that cannot limit one refuses the sandbox."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        if self._sandbox_type is not None and not any(self.environment_dir.glob("docker-compose.y*ml")):
            return
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if self.task_env_config.docker_image is None and not self._dockerfile.exists():
            raise ValueError("the sandmesh environment has one sandbox: it does not run docker-compose.yaml")

    @property
    def _dockerfile(self) -> Path:
        return self.environment_dir / "Dockerfile"

    @property
    def box(self) -> SandboxAsync:
        """The sandbox.

        Raises:
            RuntimeError: The environment has not started.
        """
        if self._box is None:
            raise RuntimeError("the environment has no sandbox: start it first")
        return self._box

    async def start(self, force_build: bool) -> None:
        """Create the sandbox, and carry out the task's Dockerfile where no type of sandboxes is named.

        Raises:
            SandboxBuildFailedError: An instruction failed or is not carried out, or there is no such type of sandboxes.
            SandmeshError: The sandbox could not be created; `fault` says whose fault that is.
        """
        image = self.task_env_config.docker_image
        prebuilt = should_use_prebuilt_docker_image(self.environment_dir, docker_image=image, force_build=force_build)
        try:
            self._box = await self._make(image if prebuilt else None).start()
        except TemplateBuildFailed as error:
            raise SandboxBuildFailedError(f"{error.message}: {error.facts.get('detail', '')[-_TAIL:]}") from error
        except (InvalidArgument, TemplateNotFound) as error:
            if self._images:
                raise SandboxBuildFailedError(error.message) from error
            if not prebuilt or self._sandbox_type:
                raise
            hint = "docker_image names a type of sandboxes of the mesh, and --ek sandbox_type=TYPE takes another"
            raise SandboxBuildFailedError(f"{error.message}: {hint}") from error
        try:
            if not prebuilt and not self._images and self._dockerfile.exists():
                await self._build()
            await self._make_directories()
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    def _make(self, image: str | None) -> SandboxAsync:
        """Return a sandbox of a type of that name, or with such an image or what the Dockerfile makes as its root."""
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        if self.task_env_config.storage_mb is not None:
            self.logger.warning("storage_mb is not enforced: the sandbox's directories have their own sizes")
        limits = {"cpus": cpus, "memory": None if memory is None else f"{memory}MiB"}
        options: dict[str, Any] = {
            **self._mesh,
            "network": self._network(),
            "limits": {kind: limit for kind, limit in limits.items() if limit is not None} or None,
            "env": self._startup_env() or None,
            "labels": {_SESSION_LABEL: self.session_id[:255]},
        }
        if self._images:
            networks = ["public", "packages"]
            root = image or Image.from_dockerfile(self._dockerfile, self.environment_dir, network=networks)
            return SandboxAsync(sandbox_type=self._sandbox_type or "base", image=root, root=True, **options)
        name = self._sandbox_type or image or _OWN_TYPE
        return HarborSandboxAsync(**options) if name == _OWN_TYPE else SandboxAsync(sandbox_type=name, **options)

    def _network(self) -> str | list[str]:
        policy = self.network_policy
        if policy.network_mode == NetworkMode.ALLOWLIST:
            return list(policy.allowed_hosts)
        return "none" if policy.network_mode == NetworkMode.NO_NETWORK else "public"

    async def _make_directories(self) -> None:
        workdir = self.task_env_config.workdir or self._workdir or (None if self._images else _WORKSPACE)
        places = [*filter(None, [workdir]), *self._mount_targets(writable_only=True)]
        try:
            await run_script(self.box, 'mkdir -p -- "$@"', *places)
        except OSError as error:
            raise SandboxBuildFailedError(f"the sandbox's type has not the task's directories: {error}") from error

    async def _build(self) -> None:
        shown = (await run_script(self.box, "env -0")).decode(errors="replace")
        own = dict(line.split("=", 1) for line in shown.split("\0") if "=" in line)
        build = Build(_WORKSPACE, env=dict(own))
        try:
            for step in build.steps(self._dockerfile.read_text(), self.environment_dir):
                await (self._copy(step) if isinstance(step, Copy) else self._run(step))
        except (DockerfileRefused, OSError) as error:
            raise SandboxBuildFailedError(f"the task's Dockerfile cannot be carried out: {error}") from error
        self._workdir = build.workdir
        self._image_env = {name: value for name, value in build.env.items() if own.get(name) != value}

    async def _copy(self, step: Copy) -> None:
        for source in step.sources:
            into = step.into and source.is_file()
            await upload(self.box, source, posixpath.join(step.target, source.name) if into else step.target)

    async def _run(self, step: Run) -> None:
        await run_script(self.box, 'mkdir -p -- "$1"', step.cwd)
        done = await run_program(self.box, ["/bin/sh", "-c", step.command], cwd=step.cwd, env=step.env)
        if done.result.is_error:
            said = (done.stderr or done.stdout).decode(errors="replace").strip() or done.result.message
            raise step.instruction.refuse(f"as the sandbox's user it failed: {said[-_TAIL:]}")

    async def stop(self, delete: bool) -> None:
        """Release the sandbox, which is never used again; without one nothing happens."""
        box, self._box = self._box, None
        if box is None:
            return
        if not delete:
            self.logger.debug("a sandbox is released with its environment, also without delete")
        try:
            await box.close()
        except SandmeshError as error:
            self.logger.warning("the sandbox was not released, and ends with its lease: %s", error)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file of this machine into the sandbox.

        Raises:
            OSError: It cannot be read here, or not be written there.
        """
        await upload(self.box, Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what is in a directory of this machine into one of the sandbox.

        Raises:
            OSError: It cannot be read here, or not be written there.
        """
        await upload(self.box, Path(source_dir), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file of the sandbox to this machine.

        Raises:
            OSError: It cannot be read there, or not be written here.
        """
        data = await run_script(self.box, 'exec cat -- "$1"', source_path)
        await asyncio.to_thread(Path(target_path).write_bytes, data)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what is in a directory of the sandbox into one of this machine; sockets, pipes and devices are left out.

        Raises:
            OSError: It cannot be read there, or not be written here.
        """
        packed = await run_script(self.box, 'exec tar -cf - -C "$1" .', source_dir)
        await asyncio.to_thread(_unpack, packed, Path(target_dir))

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command of bash in the directory of the task, by the sandbox's only user, also as root.

        In a sandbox of an image it runs as root, or as another user of the image.

        Raises:
            RuntimeError: It was ended after `timeout_sec` seconds.
            CapabilityMissing: `user` is another.
            SandmeshError: The sandbox is gone.
        """
        wanted = self._resolve_user(user)
        program = ["/bin/bash", "-c", command]
        if self._images and str(wanted or "root") not in ("root", "0"):
            program = ["su", "-s", "/bin/bash", "-c", command, str(wanted)]
        elif wanted is not None and str(wanted) not in _USERS:
            raise CapabilityMissing(f"a sandbox has one user, and none {wanted!r}", {"needs": f"user {wanted}"})
        done = await run_program(
            self.box,
            program,
            cwd=cwd or self.task_env_config.workdir or self._workdir,
            env={**self._image_env, **(self._merge_env(env) or {})},
            timeout=timeout_sec,
        )
        if done.result.reason == "TIMED_OUT":
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        return ExecResult(
            stdout=done.stdout.decode(errors="replace"),
            stderr=done.stderr.decode(errors="replace"),
            return_code=_code(done),
        )


def _code(done: Ended) -> int:
    if done.result.exit_code is not None:
        return done.result.exit_code
    return _SIGNAL_CODE + (done.result.signal or 0)


def _unpack(packed: bytes, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(target, filter=transfer_tar_filter)  # noqa: S202 - filtered

"""Images of templates that start from an image of the client's: their steps as a Dockerfile, which the mesh builds.

Sandboxes of them have root inside. What a client asks for is done as `user`, which each image gets, unless it names
another user.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass
from typing import Final

from sandmesh import BuiltImage, Image, RegistryLogin
from sandmeshd.facades.e2b.builds.plan import BuildPlan, PlanStep
from sandmeshd.facades.e2b.builds.steps import COPY, Log, StepFailed
from sandmeshd.facades.e2b.builds.uploads import Uploads
from sandmeshd.facades.e2b.envd.paths import HOME
from sandmeshd.facades.e2b.guests import USER

_HUB: Final = "docker.io"
_FILES: Final = "/run/sandmesh-files"
_PREPARE: Final = """set -e
has() { command -v "$1" > /dev/null 2>&1; }
if ! grep -q '^user:' /etc/passwd; then
  if has useradd; then useradd -m -s /bin/bash user; else adduser -D -s /bin/bash user; fi
fi
needed=1
has bash && has tar && setpriv --help 2>&1 | grep -q init-groups && needed=
if [ "$needed" ] || ! has sudo; then
  if has apt-get; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends bash sudo tar util-linux ca-certificates
    rm -rf /var/lib/apt/lists/*
  elif has apk; then apk add --no-cache bash sudo tar setpriv ca-certificates
  elif has dnf; then dnf install -y bash sudo tar util-linux
  elif [ "$needed" ]; then echo "the image needs bash, tar and setpriv: install them in it" >&2; exit 1; fi
fi
mkdir -p /etc/sudoers.d /home/user
echo 'user ALL=(ALL) NOPASSWD:SETENV: ALL' > /etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user
chown user /home/user"""
"""Gives an image what clients expect of each: the user, who may do all by sudo, and a shell."""


@dataclass(frozen=True)
class TemplateImage:
    """What a plan's steps make of an image."""

    image: Image
    environment: dict[str, str]
    workdir: str
    user: str


@dataclass
class _Steps:
    """The steps of a plan on their way into a Dockerfile."""

    image: Image
    uploads: Uploads
    build_id: str
    user: str = USER
    workdir: str = HOME

    def add(self, step: PlanStep) -> None:
        """Add one.

        Raises:
            StepFailed: Its files were not uploaded.
        """
        match step.kind:
            case "RUN":
                self._run(step.argument(1) or self.user, ["/bin/bash", "-l", "-c", step.argument(0)])
            case "COPY":
                self._copy(step)
            case "ENV":
                self.image = self.image.env(dict(zip(step.arguments[::2], step.arguments[1::2], strict=True)))
            case "WORKDIR":
                self.workdir = posixpath.normpath(posixpath.join(self.workdir, step.argument(0)))
                self._run("root", ["/bin/sh", "-c", 'mkdir -p "$1"; chown "$2" "$1"', "sh", self.workdir, self.user])
                self.image = self.image.workdir(self.workdir)
            case _:
                self.user = step.argument(0)

    def _run(self, user: str, words: list[str], mount: str = "") -> None:
        self.image = self.image.user(user).instruction(f"RUN {mount}{json.dumps(words)}")

    def _copy(self, step: PlanStep) -> None:
        source, target, user, mode = (step.argument(number) for number in range(4))
        path = self.uploads.path(self.build_id, step.files_hash)
        if not path.is_file():
            raise StepFailed(f"COPY {source}: its files were not uploaded")
        place = posixpath.join(self.workdir, target) + ("/" if target.endswith(("/", "/.")) or target == "." else "")
        self.image, name = self.image.with_file(path)
        words = ["/bin/sh", "-c", COPY, "sh", _FILES, f"./{source.lstrip('/')}", place, user or self.user, mode]
        self._run("root", words, f"--mount=type=bind,source={name},target={_FILES} ")


def describe(plan: BuildPlan, uploads: Uploads, build_id: str) -> TemplateImage:
    """Describe the image of a plan.

    Raises:
        StepFailed: Files of a step were not uploaded.
        InvalidArgument: A value does not fit.
    """
    login = None if plan.login is None else RegistryLogin(_registry(plan.image), *plan.login)
    base = Image.from_registry(plan.image, network=["public", "packages"], login=login)
    prepared = base.user("root").instruction(f"RUN {json.dumps(['/bin/sh', '-c', _PREPARE])}").workdir(HOME)
    steps = _Steps(prepared, uploads, build_id)
    for step in plan.steps:
        steps.add(step)
    environment: dict[str, str] = {}
    for step in plan.steps:
        if step.kind == "ENV":
            environment |= dict(zip(step.arguments[::2], step.arguments[1::2], strict=True))
    # Sandboxes have root inside, and their files in the workspace; who and where is chosen for each command.
    return TemplateImage(steps.image.user("root").workdir("/"), environment, steps.workdir, steps.user)


async def build(made: TemplateImage, address: str, key: str, note: Log) -> BuiltImage:
    """Build an image in the name of a key; its steps and what they write are noted.

    Raises:
        StepFailed: A command failed.
        SandmeshError: As `Image.build`.
    """
    return await made.image.build_async(
        base_url=address, bearer_token=key, progress=lambda line: note("info", line.removeprefix("  | "))
    )


def _registry(image: str) -> str:
    first, slash, _ = image.partition("/")
    return first if slash and (any(sign in first for sign in ".:") or first == "localhost") else _HUB

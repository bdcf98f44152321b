"""What a client wants built: its base, its steps and its start, checked before anything is done."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast

from sandmeshd.facades.e2b.errors import ApiError
from sandmeshd.facades.e2b.messages import STEP
from sandmeshd.facades.e2b.requests import natural, text

IMAGES: Final = {"e2bdev/base": "base", "e2bdev/code-interpreter": "code-interpreter-v1"}
"""E2B's own images, which the mesh's templates stand for."""

MOST_STEPS: Final = 500
HASH: Final = re.compile(r"[0-9a-f]{8,128}")
_ARGUMENTS: Final = {"COPY": (2, 4), "RUN": (1, 2), "WORKDIR": (1, 1), "USER": (1, 1), "ENV": (2, 1_000)}


@dataclass(frozen=True)
class PlanStep:
    """A step of a build."""

    kind: str
    arguments: tuple[str, ...]
    files_hash: str = ""

    def argument(self, number: int) -> str:
        """Return an argument, empty where there are fewer."""
        return self.arguments[number] if number < len(self.arguments) else ""


@dataclass(frozen=True)
class BuildPlan:
    """A build."""

    base: str
    """The name of a template, or of an image of which only the mesh's templates can say whether it is one."""

    image: str
    """That image, empty where a template was named."""

    steps: tuple[PlanStep, ...]
    start: str
    ready: str
    login: tuple[str, str] | None = None
    """A user and password for the image's registry."""
    pulls: bool = False
    """Whether the image is pulled, since no template stands for it."""


@dataclass(frozen=True)
class Resources:
    """What sandboxes of a build may use; None is the template's own."""

    cpus: float | None = None
    memory: int | None = None


def read_plan(found: dict[str, Any]) -> BuildPlan:
    """Read what is to be built.

    Raises:
        ApiError: A value does not fit, or the mesh cannot do what it asks for.
    """
    steps: object = found.get("steps") or []
    if not isinstance(steps, list) or len(cast("list[object]", steps)) > MOST_STEPS:
        raise ApiError(400, f"steps is a list of at most {MOST_STEPS} steps")
    read = tuple(_read_step(number, step) for number, step in enumerate(cast("list[object]", steps), 1))
    base, image = _base(found)
    login = _read_login(found.get("fromImageRegistry"))
    return BuildPlan(base, image, read, text(found, "startCmd"), text(found, "readyCmd"), login)


def read_resources(found: dict[str, Any]) -> Resources:
    """Read what sandboxes of a build may use.

    Raises:
        ApiError: A value does not fit, or the mesh cannot do what it asks for.
    """
    cpus, memory = natural(found.get("cpuCount") or 0, "cpuCount"), natural(found.get("memoryMB") or 0, "memoryMB")
    return Resources(float(cpus) or None, memory << 20 or None)


def _base(found: dict[str, Any]) -> tuple[str, str]:
    template, image = text(found, "fromTemplate"), text(found, "fromImage")
    if template or not image:
        return template or "base", ""
    name = image.removeprefix("docker.io/")
    return IMAGES.get(name.partition(":")[0], name), image


def _read_login(value: object) -> tuple[str, str] | None:
    """Read the credentials of a registry, which is one with a user and a password."""
    if not value:
        return None
    found = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if text(found, "type") != "registry":
        raise ApiError(
            400, "fromImageRegistry.type is registry, with username and password: use a token of the cloud's"
        )
    return text(found, "username"), text(found, "password")


def no_such_base(plan: BuildPlan) -> ApiError:
    """Return the answer to who starts from a template that the mesh does not have."""
    return ApiError(404, f"template '{plan.base}' not found")


def _read_step(number: int, step: object) -> PlanStep:
    found = cast("dict[str, Any]", step) if isinstance(step, dict) else {}
    STEP.check(found, f"step {number}: ")
    kind = text(found, "type")
    if kind not in _ARGUMENTS:
        raise ApiError(400, f"step {number}: type is {', '.join(_ARGUMENTS)}")
    arguments: object = found.get("args") or []
    least, most = _ARGUMENTS[kind]
    values = cast("list[object]", arguments) if isinstance(arguments, list) else []
    if not least <= len(values) <= most or not all(isinstance(value, str) and "\0" not in value for value in values):
        raise ApiError(400, f"step {number}: {kind} has a list of {least} to {most} strings as args")
    if kind == "ENV" and len(values) % 2:
        raise ApiError(400, f"step {number}: ENV has names and values in turns")
    files_hash = text(found, "filesHash")
    if kind == "COPY" and HASH.fullmatch(files_hash) is None:
        raise ApiError(400, f"step {number}: COPY has a filesHash of hexadecimal digits")
    return PlanStep(kind, tuple(str(value) for value in values), files_hash)

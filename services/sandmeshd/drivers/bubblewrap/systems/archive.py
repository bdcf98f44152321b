"""Downloads from Debian's archive, by the machine's own apt: its sources, keys, proxies and verification.

Nothing of the machine is changed, and no privilege is needed: apt's state and cache are directories of the build.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable, TemplateBuildFailed
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.drivers.node.commands import running

PROGRAMS = ("apt-get", "dpkg-deb", "tar", "bash")
COUNT = re.compile(r"(\d+) newly installed")
DOWNLOADED = 0.6
"""The progress at the end of the download."""


async def download(packages: Sequence[str], work: Path) -> AsyncGenerator[BuildStep]:
    """Download packages and all that they depend on into `work`/cache/archives, yielding the progress.

    Raises:
        TemplateBuildFailed: A package does not exist, or the archive cannot be reached; `facts["detail"]` says.
        RuntimeUnavailable: This machine has no apt.
    """
    _check_programs()
    for name in ("state/lists/partial", "cache/archives/partial"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()
    yield BuildStep("reading the archive's list of packages", -1)
    await _update(work)
    async with aclosing(_fetch(packages, work)) as steps:
        async for step in steps:
            yield step


def downloaded(work: Path) -> list[Path]:
    """Return the package files, sorted."""
    return sorted((work / "cache" / "archives").glob("*.deb"))


def _check_programs() -> None:
    lacks = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacks:
        fix = "build on Debian or a derivative of it, or choose a driver that runs images"
        message = f"systems are made from Debian's packages, and this machine has no {', '.join(lacks)}: {fix}"
        raise RuntimeUnavailable(message, {"fix": fix})


def _apt(work: Path, *words: str) -> list[str]:
    options = {
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        # As root, apt downloads as another user, who cannot write to these directories.
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
    }
    return ["apt-get", *(part for name, value in options.items() for part in ("-o", f"{name}={value}")), *words]


async def _update(work: Path) -> None:
    async with running(_apt(work, "update", "-q"), cwd=work) as command:
        if not await command.succeeded():
            raise _failed(command.detail)


async def _fetch(packages: Sequence[str], work: Path) -> AsyncGenerator[BuildStep]:
    words = ("install", "--yes", "-q", "--download-only", "--no-install-recommends", "--", *packages)
    total, done = 0, 0
    async with running(_apt(work, *words), cwd=work) as command:
        async for line in command.lines():
            if count := COUNT.search(line):
                total = int(count[1])
            elif line.startswith("Get:") and total:
                done += 1
                yield BuildStep(f"fetching {done} of {total} packages", min(done / total, 1) * DOWNLOADED)
        if not await command.succeeded():
            raise _failed(command.detail)


def _failed(detail: str) -> TemplateBuildFailed:
    errors = [line for line in detail.splitlines() if line.startswith("E: ")] or detail.splitlines()[-1:]
    why = "; ".join(line.removeprefix("E: ") for line in errors)
    fix = "correct the template's system, or apt's sources and network"
    message = f"the Debian packages could not be downloaded: {why}: {fix}"
    return TemplateBuildFailed(message, {"detail": detail, "fix": fix})

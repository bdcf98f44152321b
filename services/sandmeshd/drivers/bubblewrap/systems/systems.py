"""The systems of a driver's templates: where each is, how sandboxes see it, and its build."""

from __future__ import annotations

import asyncio
import hashlib
import json
import platform
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from sandmesh.errors import CapabilityMissing, RuntimeUnavailable, TemplateBuildFailed
from sandmeshd.drivers.bubblewrap.host_files import bind_host_files
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.systems import archive, host, root
from sandmeshd.drivers.bubblewrap.systems.binds import GENERATED
from sandmeshd.drivers.node.builds import BuildStep, building, is_being_built, is_complete, with_growth
from sandmeshd.drivers.node.interpreter import VERSION, Interpreter
from sandmeshd.drivers.node.readability import can_read, open_to_all
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from sandmeshd.templates import Template, build_command

BUILDER = "2"
"""Changes whenever the builder's result for the same packages does."""

ALWAYS = (
    *("base-files", "bash", "ca-certificates", "coreutils", "curl", "dash", "diffutils", "findutils", "git", "grep"),
    *(
        "gzip",
        "hostname",
        "libc-bin",
        "libstdc++6",
        "mawk",
        "ncurses-base",
        "procps",
        "sed",
        "tar",
        "util-linux",
        "xz-utils",
    ),
)
"""What tools and commands expect of any sandbox."""

UNPACKED = 0.9


@dataclass(frozen=True)
class SystemPlace:
    """Where a system is: a directory, or the host itself."""

    directory: Path | None

    def __str__(self) -> str:
        return "the host's packages" if self.directory is None else str(self.directory)


class Systems:
    """The systems of one driver; `of_host` are bwrap's arguments that show the host's own."""

    def __init__(self, settings: BubblewrapSettings, interpreter: Interpreter, of_host: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._interpreter = interpreter
        self._of_host = of_host

    def find(self, packages: Sequence[str]) -> SystemPlace | None:
        """Return where packages are, None if neither the host has them nor a system was built."""
        source = self._settings.system_source
        if source != "archive" and not host.lacking(packages):
            return SystemPlace(None)
        directory = self.path(packages)
        return SystemPlace(directory) if source != "host" and is_complete(directory) else None

    def path(self, packages: Sequence[str]) -> Path:
        """Return the directory of a system, built or not."""
        inputs = [BUILDER, sorted({*packages, *self._always()}), sorted(GENERATED.items()), _release()]
        key = hashlib.sha256(json.dumps([*inputs, platform.machine()]).encode()).hexdigest()[:20]
        return (self._settings.systems or self._settings.paths.state_root / "systems") / key

    def binds(self, template: Template) -> tuple[str, ...] | None:
        """Return bwrap's arguments for a template's system; None for a template without one.

        Raises:
            CapabilityMissing: Its packages are not there; the message names the command that builds them.
        """
        if not template.system:
            return None
        place = self.find(template.system)
        if place is None:
            raise self.missing(template)
        if place.directory is None:
            return (*self._of_host, *host.binds())
        mounts = bind_host_files(self._settings.readonly_mounts, self._settings.reader_uid)
        return (*self._binds(place.directory / "root"), *mounts)

    def missing(self, template: Template) -> CapabilityMissing:
        """Return the error of a template whose packages are not there."""
        lacks = host.lacking(template.system)
        build = build_command(template.name)
        install = f"apt-get install --no-install-recommends {' '.join(lacks)}"
        fixes = {"host": install, "archive": build, "auto": f"{build} (no root), or {install}"}
        fix = fixes[self._settings.system_source]
        message = f"the Debian packages of the template {template.name!r} are not there: {fix}"
        return CapabilityMissing(message, {"needs": "system", "fix": fix, "template": template.name})

    async def build(self, template: Template, bwrap: Path) -> AsyncGenerator[BuildStep]:
        """Build a template's system unless its packages are there, yielding the progress.

        Raises:
            TemplateBuildFailed: A package cannot be downloaded or unpacked.
            RuntimeUnavailable: This machine has no apt.
            CapabilityMissing: The host is to have the packages, and has not.
        """
        if not template.system or self.find(template.system) is not None:
            return
        if self._settings.system_source == "host":
            raise self.missing(template)
        target = self.path(template.system)
        if is_being_built(target):
            yield BuildStep("waiting for another process that builds its system", -1)
        async with building(target) as fresh:
            if fresh is not None:
                async with aclosing(with_growth(self._fill(fresh, template.system, bwrap), fresh)) as steps:
                    async for step in steps:
                        yield step
        if not can_read(target / "root", self._settings.reader_uid):
            fix = f"chmod o+x the directories above {target.parent}, or choose another SANDMESH_SYSTEMS"
            raise RuntimeUnavailable(
                f"sandboxes (uid {self._settings.reader_uid}) cannot read {target}: {fix}", {"fix": fix}
            )

    async def _fill(self, fresh: Path, packages: Sequence[str], bwrap: Path) -> AsyncGenerator[BuildStep]:
        work, tree = fresh / "work", fresh / "root"
        work.mkdir()
        tree.mkdir(mode=0o755)
        async with aclosing(archive.download([*packages, *self._always()], work)) as steps:
            async for step in steps:
                yield step
        async with aclosing(root.unpack(archive.downloaded(work), tree, work / "scripts")) as steps:
            async for step in steps:
                yield step
        yield BuildStep("filling the caches of fonts and libraries", UNPACKED)
        await root.settle(bwrap, tree, work / "scripts", GENERATED)
        self._check_interpreter(tree)
        (fresh / "packages").write_text("".join(f"{path.name}\n" for path in archive.downloaded(work)))
        await asyncio.to_thread(remove_tree, work)
        await asyncio.to_thread(open_to_all, fresh)

    def _always(self) -> tuple[str, ...]:
        # Its modules are those of the mesh's own Python, so it must be of the same version.
        return ALWAYS if self._is_apart() else (*ALWAYS, f"python{VERSION}")

    def _is_apart(self) -> bool:
        """Return whether the interpreter is none of Debian's, so that it is shown as the host has it."""
        prefix = self._interpreter.prefix
        return prefix.is_relative_to("/usr/local") or not prefix.is_relative_to("/usr")

    def _check_interpreter(self, tree: Path) -> None:
        inside = tree / self._interpreter.executable.relative_to("/")
        if not self._is_apart() and not inside.exists():
            fix = "set SANDMESH_PYTHON to an interpreter outside of /usr"
            message = f"the system has no {self._interpreter.executable}, which the mesh runs on: {fix}"
            raise TemplateBuildFailed(message, {"fix": fix})

    def _binds(self, tree: Path) -> tuple[str, ...]:
        arguments = ["--ro-bind", str(tree / "usr"), "/usr"]
        if self._interpreter.prefix.is_relative_to("/usr/local"):
            arguments += ["--ro-bind", "/usr/local", "/usr/local"]
        for name in root.MERGED:
            arguments += ["--symlink", f"usr/{name}", f"/{name}"]
        fonts = str(tree / host.FONTS.relative_to("/"))
        return (*arguments, "--ro-bind", str(tree / "etc"), "/etc", *host.bind_fonts(fonts))


def _release() -> str:
    """Return the host's release, whose archive its apt reads."""
    path = Path("/etc/os-release")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line for line in lines if line.startswith("VERSION_CODENAME=")), "")

"""Runs the steps of a build in a sandbox."""

from __future__ import annotations

import asyncio
import json
import posixpath
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sandmesh.errors import SandmeshError
from sandmesh.events import Output
from sandmesh.sandbox.processes import ProcessAsync, ProcessOptions
from sandmeshd.facades.e2b.builds.plan import PlanStep
from sandmeshd.facades.e2b.builds.uploads import Uploads
from sandmeshd.facades.e2b.envd.followed import ProcessConfig
from sandmeshd.facades.e2b.envd.paths import HOME, USERS, in_workspace, inside
from sandmeshd.facades.e2b.envd.processes import environment
from sandmeshd.facades.e2b.guests import Guest

Log = Callable[[str, str], None]
"""Adds an entry to a build's log: its level and its text."""

_CHUNK: Final = 256 << 10
_PROGRAM: Final = """
import glob, json, os, shutil, sys, tarfile, tempfile
source, target, mode = json.loads(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|*") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    found = sorted(glob.glob(os.path.join(folder, source))) or [os.path.join(folder, source)]
    for path in found:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True)
            made = target
        else:
            inside = target.endswith("/") or os.path.isdir(target) or len(found) > 1
            made = os.path.join(target, os.path.basename(path)) if inside else target
            os.makedirs(os.path.dirname(made) or "/", exist_ok=True)
            shutil.copy2(path, made, follow_symlinks=False)
        if mode:
            os.chmod(made, int(mode, 8))
"""
"""As Docker's COPY: of a directory its content, a file under its own name where the target is a directory."""


COPY: Final = """set -e
folder=$(mktemp -d)
files=$1
[ "$files" != - ] || { files=$folder.tar; cat > "$files"; }
tar -xf "$files" -C "$folder" --no-same-owner
cd "$folder"
IFS=
count=0
for path in $2; do count=$((count + 1)); done
for path in $2; do
  [ -e "$path" ] || [ -L "$path" ] || { echo "$path is not among the files" >&2; exit 1; }
  chown -hR "$4" "$path"
  if [ -d "$path" ] && [ ! -L "$path" ]; then
    mkdir -p "$3"; cp -a "$path/." "$3"; made=$3
  else
    case $3 in */) into=1;; *) into=; [ ! -d "$3" ] && [ $count -lt 2 ] || into=1;; esac
    made=${3%/}${into:+/${path##*/}}
    mkdir -p "${made%/*}/"; cp -a "$path" "$made"
  fi
  [ -z "$5" ] || chmod "$5" "$made"
done
cd /
rm -rf "$folder" "$folder.tar"
"""
"""As Docker's COPY: of a directory its content, a file under its own name where the target is a directory."""

MOVE_HOME: Final = """set -e
[ -L /home/user ] && exit 0
cd /home/user
cp -a . /workspace/
cd /
rm -rf /home/user
ln -s /workspace /home/user
chown user /workspace"""
"""Has the files of the home where those of sandboxes are, in the workspace."""


class StepFailed(Exception):
    """A step of a build failed; the message is for the one who wrote it."""


class Workbench:
    """The sandbox that is built, and what its steps have set."""

    def __init__(self, guest: Guest, uploads: Uploads, build_id: str, note: Log) -> None:
        self.environment: dict[str, str] = {}
        self.workdir = guest.marks.workdir
        self.user = guest.marks.user
        self._guest = guest
        self._uploads = uploads
        self._build_id = build_id
        self._log = note

    async def settle(self, environment: dict[str, str]) -> None:
        """Take over what the steps of an image have set, with its home as the workspace.

        Raises:
            StepFailed: The home cannot be moved.
        """
        self.environment = environment
        await self._program(["/bin/sh", "-c", MOVE_HOME], user="root")

    async def run(self, step: PlanStep) -> None:
        """Run a step.

        Raises:
            StepFailed: It failed, or asks for what a sandbox here does not have.
        """
        match step.kind:
            case "RUN":
                self._check_user(step.argument(1))
                await self.command(step.argument(0), step.argument(1))
            case "COPY":
                await self._copy(step)
            case "ENV":
                self.environment |= dict(zip(step.arguments[::2], step.arguments[1::2], strict=True))
            case "WORKDIR":
                place = posixpath.normpath(posixpath.join(self.workdir or HOME, step.argument(0)))
                await self._program(["mkdir", "-p", "--", inside(place)])
                self.workdir = place
            case _:
                self._check_user(step.argument(0))
                self.user = step.argument(0) if self._guest.rooted else ""

    async def command(self, command: str, user: str = "") -> None:
        """Run a command to its end.

        Raises:
            StepFailed: It ended with another code than 0.
        """
        await self._program(["/bin/bash", "-l", "-c", command], user=user)

    async def _copy(self, step: PlanStep) -> None:
        source, target, user, mode = (step.argument(number) for number in range(4))
        if user.partition(":")[0] not in USERS and not self._guest.rooted:
            raise StepFailed(f"COPY: the only user of a sandbox here is 'user', not {user!r}")
        place = self._place(target)
        if not in_workspace(place) and not self._guest.rooted:
            raise StepFailed(f"COPY to {target}: only what is below {HOME} is kept in a template here")
        place += "/" if target.endswith("/") else ""
        path = self._uploads.path(self._build_id, step.files_hash)
        if not await asyncio.to_thread(path.is_file):
            raise StepFailed(f"COPY {source}: its files were not uploaded")
        if self._guest.rooted:
            words = [
                "/bin/sh",
                "-c",
                COPY,
                "sh",
                "-",
                f"./{source.lstrip('/')}",
                place,
                user or self.user or "user",
                mode,
            ]
            await self._program(words, _chunks(path), user="root")
            return
        arguments = json.dumps([posixpath.normpath(source), place, mode])
        await self._program(["python3", "-I", "-c", _PROGRAM, arguments], _chunks(path))

    def _place(self, path: str) -> str:
        return inside(posixpath.join(self.workdir or HOME, path))

    def _check_user(self, name: str) -> None:
        if self._guest.rooted:
            return
        if name == "root":
            self._log("warn", "there is no root in sandboxes here: this runs as their only user")
        elif name not in USERS:
            raise StepFailed(f"the only user of a sandbox here is 'user', not {name!r}")

    async def _program(self, arguments: list[str], data: AsyncIterator[bytes] | None = None, *, user: str = "") -> None:
        named = user or self.user
        config = ProcessConfig(cmd=arguments[0], envs=self.environment, cwd=self.workdir, user=named)
        options: ProcessOptions = {"cwd": inside(self.workdir), "env": environment(self._guest, config)}
        command = self._guest.command_as(named, arguments)
        async with await self._guest.box.processes.start(command, **options) as process:
            sending = asyncio.create_task(_send(process, data))
            try:
                lines = _Lines(self._log)
                async for event in process:
                    if isinstance(event, Output):
                        lines.add(event.data)
                lines.end()
                result = await process.wait()
            finally:
                sending.cancel()
                await asyncio.wait([sending])
        if result.exit_code != 0:
            ended = f"code {result.exit_code}" if result.exit_code is not None else f"signal {result.signal}"
            raise StepFailed(f"the command ended with {ended}: {lines.last}".removesuffix(": "))


class _Lines:
    """Cuts output into lines for a log."""

    LONGEST: Final = 4096

    def __init__(self, note: Log) -> None:
        self._log = note
        self._rest = b""
        self.last = ""

    def add(self, data: bytes) -> None:
        """Add output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._note(line)
        if len(self._rest) > self.LONGEST:
            self.end()

    def end(self) -> None:
        """Note what has no line's end."""
        if self._rest:
            self._note(self._rest)
        self._rest = b""

    def _note(self, line: bytes) -> None:
        text = line[: self.LONGEST].decode(errors="replace").rstrip()
        if text:
            self.last = text
            self._log("info", text)


async def _send(process: ProcessAsync, data: AsyncIterator[bytes] | None) -> None:
    with suppress(SandmeshError):
        if data is not None:
            async for chunk in data:
                await process.write(chunk)
        await process.close_stdin()


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk

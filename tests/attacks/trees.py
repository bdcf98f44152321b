"""Trees that user code changes while marks, overlays, snapshots and transfers read and write them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from sandmesh import BaseSandboxAsync
from sandmesh.errors import InternalError, SandboxLost, SandmeshError
from tests.attacks.tally import Tally
from tests.attacks.target import Target

SECRET: Final = "outside-of-the-workspace"  # noqa: S105 - what is looked for
_ROUNDS: Final = 3
_RACE: Final = f"""
import os, socket, time
os.makedirs("/tmp/outside/deep", exist_ok=True)
for name in ("file", "deep/file"):
    with open("/tmp/outside/" + name, "w") as file:
        file.write({SECRET!r})
os.makedirs("tree/deep", exist_ok=True)
def attempt(*steps):
    for step, *arguments in steps:
        try:
            step(*arguments)
        except OSError:
            pass
def put(path, text="x"):
    with open(path, "w") as file:
        file.write(text)
def listen(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path)
put("begun")
while True:
"""
_SHAPES: Final[Mapping[str, str]] = {
    "a directory becomes a link outward": """
        (os.rename, "tree", "aside"), (os.symlink, "/tmp/outside", "tree"), (os.unlink, "tree"),
        (os.rename, "aside", "tree"),
    """,
    "a directory within becomes a link up": """
        (os.rename, "tree/deep", "tree/aside"), (os.symlink, "../../tmp/outside/deep", "tree/deep"),
        (os.unlink, "tree/deep"), (os.rename, "tree/aside", "tree/deep"),
    """,
    "a file becomes a link outward": """
        (put, "tree/file"), (os.unlink, "tree/file"), (os.symlink, "/tmp/outside/file", "tree/file"),
        (os.unlink, "tree/file"),
    """,
    "a file becomes a pipe": """
        (put, "tree/file"), (os.unlink, "tree/file"), (os.mkfifo, "tree/file"), (os.unlink, "tree/file"),
    """,
    "a file becomes a directory": """
        (put, "tree/file"), (os.unlink, "tree/file"), (os.mkdir, "tree/file"), (put, "tree/file/in"),
        (os.unlink, "tree/file/in"), (os.rmdir, "tree/file"),
    """,
    "a file becomes a socket": """
        (listen, "tree/file"), (os.unlink, "tree/file"), (put, "tree/file"), (os.unlink, "tree/file"),
    """,
    "an unreadable directory": """
        (os.mkdir, "tree/shut"), (put, "tree/shut/in"), (os.chmod, "tree/shut", 0), (time.sleep, 0.01),
        (os.chmod, "tree/shut", 0o700), (os.unlink, "tree/shut/in"), (os.rmdir, "tree/shut"),
    """,
    "names that are no text": """
        (put, b"tree/\\xff\\xfe"), (put, b"tree/a\\nb"), (put, b"tree/" + b"n" * 255), (put, b"tree/\\xed\\xa0\\x80"),
        (os.unlink, b"tree/\\xff\\xfe"), (os.unlink, b"tree/a\\nb"),
    """,
    "two names of one file": """
        (put, "tree/one"), (os.link, "tree/one", "tree/two"), (os.link, "/tmp/outside/file", "tree/three"),
        (os.unlink, "tree/two"), (os.unlink, "tree/one"),
    """,
    "a file that grows and shrinks": """
        (put, "tree/file", "y" * 300_000), (os.truncate, "tree/file", 1 << 40), (os.truncate, "tree/file", 0),
    """,
    "the staging of the agent": """
        *[(os.rename, name, name + "x") for name in os.listdir(".") if name.startswith(".sandmesh")],
        *[(os.symlink, "/tmp/outside", name[:-1]) for name in os.listdir(".") if name.startswith(".sandmesh")],
    """,
}


async def race(target: Target, tally: Tally) -> None:
    """Do what reads and writes trees in ada's own sandbox, while each shape of them changes."""
    for shape, steps in _SHAPES.items():
        async with target.box("ada") as box:
            await box.fs.write("race.py", f"{_RACE}    attempt(\n{steps}\n    )\n")
            async with await box.processes.start("exec python3 race.py") as running:
                await _begun(box)
                for name, attempt in _ATTEMPTS.items():
                    for _ in range(_ROUNDS):
                        tally.note(f"{shape}: {name}", held=await _held(box, attempt))
                await running.kill()
            outside = await box.run_shell_command(
                "cat /tmp/outside/file /tmp/outside/deep/file; ls -A /tmp/outside | wc -l"
            )
            tally.note(f"{shape}: what is outside stays", held=outside.text == f"{SECRET}{SECRET}2\n")
            result = await box.run_ipython_cell("6 * 7")
            tally.note(f"{shape}: the sandbox answers", held=result.text.strip() == "42")


async def _begun(box: BaseSandboxAsync) -> None:
    async with asyncio.timeout(30):
        async with await box.fs.watch() as changes:
            while not await box.fs.exists("begun"):
                await anext(changes)


async def _held(box: BaseSandboxAsync, attempt: Callable[[BaseSandboxAsync], Awaitable[bool]]) -> bool:
    """Return whether an attempt showed and changed nothing outside; a refusal with a reason is right, too."""
    try:
        async with asyncio.timeout(60):
            return await attempt(box)
    except (InternalError, SandboxLost, TimeoutError):
        return False
    except (SandmeshError, OSError):
        return True


async def _rewind(box: BaseSandboxAsync) -> bool:
    mark = await box.mark(kernels=False)
    with suppress(OSError):
        await box.fs.write("tree/deep/changed", "changed")
    await box.rewind(mark)
    await box.drop(mark)
    return True


async def _overlay(box: BaseSandboxAsync) -> bool:
    async with box.overlay() as branch:
        await branch.fs.write("tree/deep/of-branch", "from the branch")
        await branch.fs.write("tree/of-branch", "from the branch")
        differences = [str(one) for one in await branch.diff()]
        await branch.commit(force=True)
    return not any(SECRET in difference for difference in differences)


async def _download(box: BaseSandboxAsync) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        await box.fs.download_dir(".", Path(folder) / "got", exclude=["race.py"])
        return not await asyncio.to_thread(_has_secret, Path(folder))


def _has_secret(folder: Path) -> bool:
    # What is linked in by a hard link is the tree's own.
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.name != "three")
    return any(SECRET in path.open(errors="replace").read(1000) for path in files)


async def _upload(box: BaseSandboxAsync) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        await asyncio.to_thread(_write_tree, Path(folder) / "deep")
        await box.fs.upload_dir(folder, "tree")
    return True


def _write_tree(deep: Path) -> None:
    deep.mkdir()
    for name in ("file", "of-upload"):
        (deep / name).write_text("from the client")


async def _copy(box: BaseSandboxAsync) -> bool:
    forks = await box.fork(1, kernels=False)
    for fork in forks:
        async with fork:
            found = await fork.run_shell_command(
                "cat /tmp/outside/file tree/file tree/deep/file 2>/dev/null", timeout=10
            )
            return SECRET not in found.text
    return True


async def _write(box: BaseSandboxAsync) -> bool:
    await box.fs.write("tree/deep/file", "from the client")
    await box.fs.write("tree/file", "from the client")
    return SECRET not in await box.fs.read("tree/deep/file")


_ATTEMPTS: Final = {
    "mark and rewind": _rewind,
    "overlay and commit": _overlay,
    "download": _download,
    "upload": _upload,
    "fork": _copy,
    "write and read": _write,
}

"""Every method of SWE-ReX's RemoteRuntime, as the package has it, against a mesh: `sandmesh up --swerex`.

The same calls go to the package's LocalRuntime, whose replies and exceptions are to be the same.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Awaitable
from pathlib import Path

from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from swerex.runtime.local import LocalRuntime
from swerex.runtime.remote import RemoteRuntime


async def outcome(call: Awaitable[object]) -> object:
    """Return what a call returns, or the class of what it raises."""
    try:
        return await call
    except Exception as error:  # any class is an outcome to compare
        return type(error).__name__


async def shells(runtime: AbstractRuntime) -> list[object]:
    """Use shells that keep their state."""

    def run(command: str, **options: object) -> Awaitable[object]:
        return outcome(runtime.run_in_session(BashAction(command=command, timeout=20, **options)))

    # What a shell writes at its start is the machine's own prompt.
    found = [type(await outcome(runtime.create_session(CreateBashSessionRequest(startup_timeout=20)))).__name__]
    found += [await outcome(runtime.create_session(CreateBashSessionRequest()))]
    for command in (
        "echo one",
        "x=5; cd /tmp; export Y=ada",
        "echo $x $Y; pwd",
        "echo two\necho three",
        "cat <<END\nfour\nfive\nEND",
        "f() { echo six; }\nf",
        "echo 'a  b' \"c d\"",
        "printf 'no newline'",
        "echo error >&2",
        "# a comment",
        "echo a && false",
        "if then",
        "echo \u00e4\u4e16",
    ):
        found += [await run(command)]
    found += [
        await run("false", check="silent"),
        await run("false", check="ignore"),
        await run("exit 3", check="raise"),
    ]
    found += [await outcome(runtime.close_session(CloseBashSessionRequest()))]
    found += [await outcome(runtime.close_session(CloseBashSessionRequest()))]
    found += [await run("echo nobody")]
    return found


async def programs(runtime: AbstractRuntime) -> list[object]:
    """Use an interactive program, and interrupt what takes too long."""

    def run(command: str, **options: object) -> Awaitable[object]:
        return outcome(runtime.run_in_session(BashAction(command=command, session="two", **options)))

    await runtime.create_session(CreateBashSessionRequest(session="two", startup_timeout=20))
    prompt = {"is_interactive_command": True, "expect": [">>> "], "timeout": 20}
    found = [
        type(await run("python3 -q", **prompt)).__name__,
        getattr(await run("print(6 * 7)", **prompt), "output", ""),
    ]
    found += [getattr(await run("quit()", is_interactive_quit=True, timeout=20), "expect_string", "")]
    found += [await run("echo back", timeout=20), await run("sleep 30", timeout=0.5)]
    interrupted = await outcome(runtime.run_in_session(BashInterruptAction(session="two", timeout=5)))
    found += [type(interrupted).__name__, await run("echo again", timeout=20)]
    return found


async def files(runtime: AbstractRuntime, folder: str) -> list[object]:
    """Run commands, and use files."""
    found = [
        await outcome(runtime.execute(Command(command=["echo", "a b"]))),
        await outcome(runtime.execute(Command(command="echo $((6 * 7)); echo e >&2", shell=True))),
        await outcome(runtime.execute(Command(command="echo o; echo e >&2", shell=True, merge_output_streams=True))),
        await outcome(runtime.execute(Command(command="exit 4", shell=True))),
        await outcome(runtime.execute(Command(command="exit 4", shell=True, check=True))),
        await outcome(runtime.execute(Command(command=["sleep", "30"], timeout=0.3))),
        await outcome(runtime.execute(Command(command=["no-such-program"]))),
        await outcome(runtime.execute(Command(command="echo $A; pwd", shell=True, env={"A": "b"}, cwd="/tmp"))),
        await outcome(runtime.write_file(WriteFileRequest(path=f"{folder}/deep/down.txt", content="l1\nl2\u00e4"))),
        await outcome(runtime.read_file(ReadFileRequest(path=f"{folder}/deep/down.txt"))),
        await outcome(runtime.read_file(ReadFileRequest(path=f"{folder}/missing"))),
        await outcome(runtime.read_file(ReadFileRequest(path=folder))),
    ]
    with tempfile.TemporaryDirectory() as source:
        Path(source, "inner").mkdir()
        Path(source, "inner", "data").write_text("content")
        for name, target in (("inner/data", f"{folder}/one"), ("", f"{folder}/many")):
            upload = UploadRequest(source_path=str(Path(source, name)), target_path=target)
            found += [await outcome(runtime.upload(upload))]
    for name in ("one", "many/inner/data"):
        found += [await outcome(runtime.read_file(ReadFileRequest(path=f"{folder}/{name}")))]
    return found


async def of_the_package() -> list[object]:
    """Return the replies of the package's own runtime."""
    own = LocalRuntime()
    with tempfile.TemporaryDirectory() as folder:
        found = [await shells(own), await programs(own), await files(own, folder)]
    await own.close()
    return list(itertools.chain(*found))


async def main() -> None:
    """Compare both runtimes."""
    remote = RemoteRuntime(host=os.environ["BASE_URL"] + "/swerex/example", auth_token=os.environ["TOKEN"], timeout=10)
    assert await remote.is_alive()
    await remote.wait_until_alive(timeout=10)
    found = [await shells(remote), await programs(remote), await files(remote, "/tmp/example")]
    replies = list(itertools.chain(*found))
    different = [""]
    # On a busy machine the package's own shell misses an exit code, and answers one command late from there on.
    for _ in range(3):
        pairs = list(zip(replies, await of_the_package(), strict=True))
        assert len(pairs) > 40
        different = [f"here {here!r}, with the package's own runtime {own!r}" for here, own in pairs if here != own]
        if not different:
            break
    assert not different, "\n".join(different)
    await remote.close()
    print(f"{len(pairs)} replies are the same")


asyncio.run(main())

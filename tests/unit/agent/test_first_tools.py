"""A call is answered alike before and after the agent has imported all tools."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.errors import InternalError, SandmeshError
from sandmesh.tools import RunIpythonCell, RunShellCommand
from sandmeshd.agent.calls.call import Outcome, RunningCall, Timeouts
from sandmeshd.agent.calls.toolbox import Toolbox
from sandmeshd.agent.startup.deferred import Deferred
from sandmeshd.agent.startup.first_tools import FirstTools

PLAIN = (
    *(b'{"NAME": "1+1"}', '{"NAME": "print(\u00e9)", "timeout": null}'.encode(), b'{"timeout": 3, "NAME": "a\\nb"}'),
    *(b' {"NAME": "\\ud83d\\ude00", "timeout": 0.5} ', b'{"NAME": "a", "NAME": "b"}', b'{"NAME": "a\\u0000b"}'),
    *(b'{"NAME": "a", "timeout": 1e8}', b'{"NAME": "a", "timeout": 1e-9}', b'{"NAME": "\\u200b"}'),
)
MORE = (
    *(b'{"command": "a", "cwd": "/tmp"}', b'{"command": "a", "cwd": ""}', b'{"command": "a", "cwd": null}'),
    *(b'{"command": "a", "env": {}}', b'{"command": "a", "env": {"A": "1", "": "\\u00e9"}, "timeout": 2}'),
)
OTHERS = (
    *(b"", b"{}", b"[]", b"null", b"1", b'"code"', b"{", b'{"NAME": ""}', b'{"NAME": " "}', b'{"NAME": 1}'),
    *(b'{"NAME": null}', b'{"NAME": ["a"]}', b'{"NAME": {"a": 1}}', b'{"NAME": true}', b'[{"NAME": "a"}]'),
    *(b'{"NAME": "a", "more": 1}', b'{"NAME": "a", "more": null}', b'{"name": "a"}', b'{"NAME ": "a"}'),
    *(b'{"NAME": "a", "timeout": 0}', b'{"NAME": "a", "timeout": -1}', b'{"NAME": "a", "timeout": -0.0}'),
    *(b'{"NAME": "a", "timeout": true}', b'{"NAME": "a", "timeout": "3"}', b'{"NAME": "a", "timeout": []}'),
    *(b'{"NAME": "a", "timeout": NaN}', b'{"NAME": "a", "timeout": Infinity}', b'{"NAME": "a", "timeout": 1e400}'),
    *(b'{"NAME": "a", "timeout": 1' + b"0" * 400 + b"}", b'{"NAME": "a", "timeout": 1e12}'),
    *(b'{"NAME": "\\ud800"}', b'{"NAME": "\xff"}', b'{"NAME": "a\nb"}', b'{"NAME": "a"} x', b"[" * 100_000),
    *('{"NAME": "a"}'.encode("utf-16"), b"\xef\xbb\xbf" + b'{"NAME": "a"}', '{"NAME": "\u00a0\u2028"}'.encode()),
)
WRONG = (
    *(b'{"command": "a", "cwd": 1}', b'{"command": "a", "cwd": "\\udc80"}', b'{"command": "a", "cwd": ["a"]}'),
    *(b'{"command": "a", "env": {"A": 1}}', b'{"command": "a", "env": {"A": null}}', b'{"command": "a", "env": []}'),
    *(
        b'{"command": "a", "env": {"\\udc80": "a"}}',
        b'{"command": "a", "env": {"A": {}}}',
        b'{"command": "a", "env": ""}',
    ),
)
CELLS = [("run_ipython_cell", case.replace(b"NAME", b"code")) for case in (*PLAIN, *OTHERS)]
COMMANDS = [("run_shell_command", case.replace(b"NAME", b"command")) for case in (*PLAIN, *MORE, *OTHERS, *WRONG)]
STRANGE = [("run_cell", b'{"code": "1"}'), ("", b"{}"), ("RunIpythonCell", b"{}"), ("write_file", b"{}")]
FIRST = {case.replace(b"NAME", name) for case in (*PLAIN, *MORE) for name in (b"code", b"command")}


async def run_cell(_: Any, __: RunningCall) -> Outcome:
    """Stand for what runs cells."""
    return Outcome()


async def run_command(_: Any, __: RunningCall) -> Outcome:
    """Stand for what runs commands."""
    return Outcome()


WHOLE = Toolbox({RunIpythonCell: run_cell, RunShellCommand: run_command}, ["generic"])


def answer(tools: FirstTools | Toolbox, name: str, arguments: bytes) -> object:
    """Return what a call's preparation comes to."""
    try:
        params, handler = tools.prepare(name, arguments)
    except SandmeshError as error:
        return type(error), str(error), error.facts
    return asdict(params), handler, tools.is_bounded(name)


@pytest.mark.parametrize(("name", "arguments"), [*CELLS, *COMMANDS, *STRANGE])
def test_a_call_is_prepared_early_as_it_is_late(name: str, arguments: bytes) -> None:
    imports: list[Toolbox] = []

    def whole() -> Toolbox:
        imports.append(WHOLE)
        return WHOLE

    assert answer(FirstTools(run_cell, run_command, whole), name, arguments) == answer(WHOLE, name, arguments)
    assert bool(imports) == (arguments not in FIRST or name in dict(STRANGE))


def test_the_listing_is_that_of_all_tools() -> None:
    early = FirstTools(run_cell, run_command, lambda: WHOLE)
    assert early.listing("") == WHOLE.listing("")
    assert early.added is WHOLE.added


async def test_the_rest_is_imported_after_the_first_call_and_not_before() -> None:
    loop = asyncio.get_running_loop()
    imported: asyncio.Future[None] = loop.create_future()
    late = Deferred([], lambda: loop.call_soon_threadsafe(imported.set_result, None))
    try:
        run = late.begun_by(run_command, 0.0)
        assert not imported.done()
        for _ in range(2):
            assert await run(None, RunningCall(pb.CallStart(), Timeouts())) == Outcome()
        async with asyncio.timeout(60):
            await imported
    finally:
        late.close()


def test_what_could_not_be_imported_is_told_to_who_needs_it_and_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    late = Deferred(["sandmesh.not_there"], lambda: WHOLE)
    try:
        assert isinstance(late.begin().exception(60), ModuleNotFoundError)
        with pytest.raises(InternalError, match=r"sandmesh\.not_there"):
            late.get()
    finally:
        late.close()
    assert "No module named 'sandmesh.not_there'" in capfd.readouterr().err


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    there = tmp_path / "there"
    late = Deferred([], there.read_text)
    try:
        with pytest.raises(InternalError, match="No such file"):
            late.get()
        there.write_text("whole")
        assert late.get() == "whole"
        there.unlink()
        assert late.get() == "whole"
    finally:
        late.close()

"""The sync classes: the portal, interrupts, running loops and forks."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandmesh import (
    BaseSandbox,
    BaseSandboxAsync,
    BrowserSandbox,
    BrowserSandboxAsync,
    FilesystemSandbox,
    FilesystemSandboxAsync,
    GuiSandbox,
    GuiSandboxAsync,
    Output,
    Result,
    Sandbox,
    ToolResult,
    tools,
)
from sandmesh import errors as e
from sandmesh._client.portal import Portal
from sandmesh._client.process_state import process
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmesh.sandbox.builtin import sync_class
from sandmesh.sandbox.screen.browser import Browser, BrowserAsync
from sandmesh.sandbox.screen.desktop import Desktop, DesktopAsync
from sandmesh.shared.sandbox_types import first_type

from .conftest import World
from .stand_in import Served


async def hang(call: Served) -> None:
    """Say that it runs, and end only when it is cancelled."""
    await call.send(started=pb.Started(pid=7))
    await call.cancelled.wait()
    await call.end(reason=pb.END_REASON_CANCELLED)


def test_the_sync_box_does_what_the_async_one_does(threaded_world: World) -> None:
    with BaseSandbox(base_url=threaded_world.address) as box:
        assert box.run_ipython_cell("1+1").text == "2"
        assert box.call_tool("run_ipython_cell", {"code": "1+1"}).text == "2"
        assert box.call(tools.RunIpythonCell(code="1+1")).text == "2"
        assert box.get_info()["sandbox_id"] == box.sandbox_id
        assert list(box.list_tools()) == ["generic"]
        events = list(box.stream("run_ipython_cell", code="x"))
        assert isinstance(events[1], Output)
        assert isinstance(events[-1], Result)
    assert threaded_world.mesh.sessions == {}


def test_threads_share_a_box(threaded_world: World) -> None:
    with BaseSandbox(base_url=threaded_world.address) as box, ThreadPoolExecutor(8) as pool:
        answers = [answer.text for answer in pool.map(box.run_ipython_cell, (f"cell {n}" for n in range(64)))]
    assert answers == [f'{{"code": "cell {n}"}}' for n in range(64)]
    assert threaded_world.mesh.streams == 1


def test_errors_arrive_in_the_calling_thread(threaded_world: World) -> None:
    with BaseSandbox(base_url=threaded_world.address) as box:
        with pytest.raises(e.ToolNotFound):
            box.call_tool("nothing")
        with pytest.raises(e.InvalidArgument):
            box.run_shell_command("")
        with pytest.raises(e.ToolNotFound):
            next(box.stream("nothing"))


def test_closing_a_stream_cancels_its_call(threaded_world: World) -> None:
    threaded_world.mesh.tools["hang"] = hang
    with BaseSandbox(base_url=threaded_world.address) as box:
        with box.stream("hang") as events:
            next(events)
        assert list(events) == []
        (call,) = threaded_world.mesh.calls.values()
        while not call.cancelled.is_set():
            box.run_ipython_cell("1+1")


def test_a_stream_that_nobody_holds_any_more_cancels_its_call(threaded_world: World) -> None:
    threaded_world.mesh.tools["hang"] = hang
    with BaseSandbox(base_url=threaded_world.address) as box:
        for _ in box.stream("hang"):
            break
        (call,) = threaded_world.mesh.calls.values()
        while not call.cancelled.is_set():
            box.run_ipython_cell("1+1")


@pytest.mark.parametrize(
    ("sync", "twin"),
    [
        (Sandbox, Sandbox.twin_class),
        (BaseSandbox, BaseSandboxAsync),
        (FilesystemSandbox, FilesystemSandboxAsync),
        (GuiSandbox, GuiSandboxAsync),
        (Desktop, DesktopAsync),
        (BrowserSandbox, BrowserSandboxAsync),
        (Browser, BrowserAsync),
    ],
)
def test_each_async_method_has_its_sync_one_with_name_signature_and_docstring(sync: type, twin: type) -> None:
    for name in dir(twin):
        if name.startswith("_") or name in ("default_type", "is_open"):
            continue
        mine, theirs = getattr(sync, name), getattr(twin, name)
        assert inspect.getdoc(mine) == inspect.getdoc(theirs)
        if inspect.isfunction(theirs):
            assert list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters)


def test_every_declared_tool_is_a_method_of_the_right_group() -> None:
    shown = {name: cls for name, cls in tools.TOOLS.items() if cls.group not in tools.PLUMBING}
    for name, declaration in shown.items():
        assert hasattr(BaseSandbox, name) == (declaration.group in ("generic", "git"))
        assert hasattr(FilesystemSandbox, name) == (declaration.group in ("generic", "git", "filesystem"))
        first = sync_class(first_type(declaration.group))
        parameters = list(inspect.signature(getattr(first, name)).parameters)[1:]
        assert parameters == list(inspect.signature(declaration).parameters)


async def test_blocking_in_a_running_loop_works_and_warns_once_naming_the_twin(threaded_world: World) -> None:
    program = IN_A_LOOP.format(address=threaded_world.address)
    out = await asyncio.to_thread(run_program, program)
    assert out == "2 2\nRuntimeWarning 1 BaseSandboxAsync\n"


IN_A_LOOP = """
import asyncio, warnings
from sandmesh import BaseSandbox
async def main():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        box = BaseSandbox(base_url="{address}").start()
        print(box.run_ipython_cell("1+1").text, box.run_ipython_cell("1+1").text)
        box.close()
    named = [str(w.message).split("use ")[1].split()[0] for w in caught]
    print(caught[0].category.__name__, len(caught), *named)
asyncio.run(main())
"""


def run_program(program: str) -> str:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout


INTERRUPTED = """
import _thread, os, signal, sys, threading
from sandmesh import BaseSandbox, Started
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits it ignored
box = BaseSandbox(base_url="{address}").start()
def interrupt_when_it_runs():
    sys.stdin.readline()
    {interrupt}
threading.Thread(target=interrupt_when_it_runs, daemon=True).start()
try:
    {statement}
except KeyboardInterrupt:
    print("interrupted")
print(box.run_ipython_cell("1+1").text)
box.close()
"""


# The second is noted without waking the thread, as a signal is that comes just before the thread falls asleep.
@pytest.mark.parametrize("interrupt", ["os.kill(os.getpid(), signal.SIGINT)", "_thread.interrupt_main()"])
@pytest.mark.parametrize("statement", ['box.call_tool("hang")', 'list(box.stream("hang"))'])
def test_an_interrupt_cancels_the_remote_work_and_the_box_goes_on(
    threaded_world: World, statement: str, interrupt: str
) -> None:
    running = threading.Event()

    async def tell_and_hang(call: Served) -> None:
        running.set()
        await hang(call)

    threaded_world.mesh.tools["hang"] = tell_and_hang
    program = INTERRUPTED.format(address=threaded_world.address, statement=statement, interrupt=interrupt)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert running.wait(30)
        out, _ = process.communicate("go\n", timeout=30)
    assert out == "interrupted\n2\n"
    first = next(iter(threaded_world.mesh.calls.values()))
    assert first.cancelled.is_set()
    assert threaded_world.mesh.sessions == {}


FORKED = """
import os, signal, threading
from sandmesh import BaseSandbox, errors
def in_child(box):
    signal.alarm(20)
    try:
        box.run_ipython_cell("1+1")
    except errors.WrongState as error:
        print(error.facts["state"], flush=True)
    with BaseSandbox(base_url="{address}") as own:
        print(own.run_ipython_cell("1+1").text, own.sandbox_id != box.sandbox_id, flush=True)
    box.close()
    os._exit(0)
stop, answers = threading.Event(), []
with BaseSandbox(base_url="{address}") as box:
    def call():
        while not stop.is_set():
            answers.append(box.run_ipython_cell("1+1").text)
    thread = threading.Thread(target=call)
    thread.start()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            in_child(box)
        print(os.waitpid(child, 0)[1], flush=True)
    stop.set()
    thread.join()
    print(set(answers), box.run_ipython_cell("1+1").text)
"""


def test_a_fork_leaves_the_parents_calls_running_and_gives_the_child_its_own(threaded_world: World) -> None:
    out = run_program_quietly(FORKED.format(address=threaded_world.address))
    assert out == "FORKED\n2 True\n0\n" * 3 + "{'2'} 2\n"
    assert threaded_world.mesh.sessions == {}


FORKED_BESIDE_A_LOOP = """
import asyncio, os, signal
from sandmesh import BaseSandbox, BaseSandboxAsync
def fork():
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with BaseSandbox(base_url="{address}") as own:
            print(own.run_ipython_cell("1+1").text, flush=True)
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
async def main():
    async with BaseSandboxAsync(base_url="{address}") as box:
        await box.run_ipython_cell("1+1")
        await asyncio.to_thread(fork)
        print((await box.run_ipython_cell("1+1")).text)
    fork()
asyncio.run(main())
"""


def test_a_thread_may_fork_beside_a_loop_and_a_loop_that_closed_its_boxes(threaded_world: World) -> None:
    out = run_program_quietly(FORKED_BESIDE_A_LOOP.format(address=threaded_world.address))
    assert out == "2\n0\n2\n2\n0\n"


async def test_a_child_of_a_loop_with_open_boxes_is_told_that_grpc_cannot_work_there(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address):
        process().before_fork()
        with pytest.raises(e.RuntimeUnavailable, match="forked"):
            process().child().check_fork()
        process().after_fork()
    process().before_fork()
    process().child().check_fork()
    process().after_fork()


def run_program_quietly(program: str) -> str:
    """Run a program whose children end by os._exit, where development mode would complain of what they hold."""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_program_that_closes_nothing_ends_quietly(threaded_world: World) -> None:
    program = f"""
from sandmesh import BaseSandbox
box = BaseSandbox(base_url="{threaded_world.address}").start()
print(box.run_ipython_cell("1+1").text)
events = box.stream("run_ipython_cell", code="x")
next(events)
"""
    assert run_program(program) == "2\n"


async def test_the_portal_gives_results_and_exceptions_and_waits_for_cancellation() -> None:
    portal, seen = Portal(), list[str]()

    async def give(value: int) -> int:
        await asyncio.sleep(0)
        return 10 // value

    def check() -> None:
        assert portal.run(give(5)) == 2
        with pytest.raises(ZeroDivisionError):
            portal.run(give(0))
        with pytest.raises(asyncio.CancelledError):
            portal.run(cancel_itself())

    async def cancel_itself() -> None:
        try:
            raise asyncio.CancelledError
        finally:
            seen.append("cleaned up")

    await asyncio.to_thread(check)
    assert seen == ["cleaned up"]
    await stop(portal)


async def stop(portal: Portal) -> None:
    portal.post(portal.loop.stop)
    await asyncio.to_thread(portal.join)
    portal.loop.close()


def test_result_is_exported_as_the_type_of_every_method() -> None:
    run: Callable[..., object] = BaseSandbox.run_ipython_cell
    with warnings.catch_warnings():
        assert inspect.signature(run).return_annotation in ("ToolResult", ToolResult)

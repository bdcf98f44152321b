"""asyncio, multiprocessing, debuggers and interrupts in a kernel, as in Jupyter."""

from __future__ import annotations

import pytest

from sandmesh.api.call.v1 import call_pb2 as pb

from .client import Client, Ended
from .test_cells import run, start, texts

pytestmark = pytest.mark.needs("user namespaces")

COUNTER = """
import asyncio, time
n = 0
async def count():
    global n
    while True:
        n += 1
        await asyncio.sleep(0.01)
"""


async def value(client: Client, code: str) -> str:
    """Run a cell that must succeed and return its text."""
    ended = await run(client, code)
    assert not ended.result.is_error, ended.result.message + texts(ended, "stderr")
    return texts(ended)


@pytest.mark.parametrize(
    "code",
    [
        "t = asyncio.create_task(count())",
        "t = asyncio.ensure_future(count())",
        "t = asyncio.get_running_loop().create_task(count())",
        "t = asyncio.get_event_loop().create_task(count())",
        "async def begin(): return asyncio.create_task(count())\nt = await begin()",
        "def tick():\n    global n\n    n += 1\n    asyncio.get_event_loop().call_later(0.01, tick)\ntick()",
    ],
)
async def test_what_a_cell_starts_in_the_loop_goes_on_while_the_kernel_idles(client: Client, code: str) -> None:
    await value(client, COUNTER + code)
    before = int(await value(client, "n"))
    # Time passes outside of the kernel: a program waits for the counter's effect on nothing but a clock.
    await client.start("run_shell_command", b'{"command": "sleep 0.3"}').end()
    assert int(await value(client, "n")) > before + 3


@pytest.mark.parametrize(
    "code",
    [
        "asyncio.run(five())",
        "asyncio.get_event_loop().run_until_complete(five())",
        "asyncio.new_event_loop().run_until_complete(five())",
        "asyncio.Runner().run(five())",
        "t = asyncio.create_task(five()); asyncio.get_event_loop().run_until_complete(t)",
        "await five()",
        "await asyncio.gather(five()) and 5",
        "await asyncio.to_thread(lambda: asyncio.run(five()))",
    ],
)
async def test_a_coroutine_runs_by_every_way_that_scripts_and_notebooks_know(client: Client, code: str) -> None:
    await run(client, "import asyncio\nasync def five():\n    await asyncio.sleep(0)\n    return 5")
    await run(client, "background = asyncio.create_task(asyncio.sleep(600))")
    assert await value(client, code) == "5"
    assert await value(client, "background.done()") == "False"


async def test_a_server_answers_between_cells(client: Client) -> None:
    await value(
        client,
        "import asyncio\nasync def hello(reader, writer):\n    writer.write(b'hello'); writer.close()\n"
        "server = await asyncio.start_server(hello, '127.0.0.1', 8765)",
    )
    ended = await client.start("run_shell_command", b'{"command": "timeout 10 cat < /dev/tcp/127.0.0.1/8765"}').end()
    assert ended.stdout == b"hello"


async def test_what_a_task_prints_and_shows_between_cells_comes_with_the_next_one(client: Client) -> None:
    code = """
import asyncio, sys
from IPython.display import Markdown, display
async def late():
    await asyncio.sleep(0.05)
    for number in range(3):
        print("out", number); print("err", number, file=sys.stderr)
    display(Markdown("*shown*"))
task = asyncio.create_task(late())
"""
    await value(client, code)
    await client.start("run_shell_command", b'{"command": "sleep 0.3"}').end()
    ended = await run(client, "print('next')")
    assert ended.stdout == b"out 0\nout 1\nout 2\nnext\n"
    assert ended.stderr == b"err 0\nerr 1\nerr 2\n"
    assert "*shown*" in texts(ended)


async def interrupt(client: Client, code: str) -> Ended:
    """Run a cell, interrupt it once it has begun and return how it ended."""
    call = start(client, f"import asyncio, os, time\nos.write(1, b'begun')\n{code}")
    await call.until(b"begun")
    call.send(signal=pb.Signal(number=2))
    return await call.end()


@pytest.mark.parametrize(
    "code",
    [
        "time.sleep(60)",
        "while True: pass",
        "await asyncio.sleep(60)",
        "await asyncio.gather(asyncio.sleep(60), asyncio.sleep(60))",
        "asyncio.run(asyncio.sleep(60))",
        "async def spin():\n    while True: pass\nawait spin()",
    ],
)
async def test_an_interrupt_is_raised_in_the_users_code_and_shows_no_other(client: Client, code: str) -> None:
    await run(client, "kept = 1")
    ended = await interrupt(client, code)
    shown = texts(ended, "stderr")
    assert "KeyboardInterrupt" in shown
    assert "Cell In[" in shown
    assert "sandmesh" not in shown
    assert await value(client, "kept") == "1"


async def test_a_cell_that_was_interrupted_while_it_waited_does_not_go_on_later(client: Client) -> None:
    await value(client, "import asyncio\ngate = asyncio.Event()")
    await interrupt(client, "await gate.wait()\nwent_on = 1")
    await value(client, "gate.set(); await asyncio.sleep(0.1)")
    assert await value(client, "'went_on' in globals()") == "False"


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
async def test_multiprocessing_works_by_every_method_also_after_a_reset(client: Client, method: str) -> None:
    code = (
        f"import multiprocessing\nwith multiprocessing.get_context('{method}').Pool(2) as p: print(p.map(abs, [-1, 2]))"
    )
    assert (await run(client, code)).stdout == b"[1, 2]\n"
    await run(client, "%reset -f")
    assert (await run(client, code)).stdout == b"[1, 2]\n"
    assert b"spec" not in (await run(client, "%who")).stdout


@pytest.mark.parametrize(
    "code",
    [
        "import pdb; pdb.set_trace()",
        "breakpoint()",
        "def f():\n    breakpoint()\n    return 1\nf()",
    ],
)
async def test_a_debugger_shows_the_users_frames_and_ends_with_its_cell(client: Client, code: str) -> None:
    ended = await run(client, code)
    assert b"(Pdb)" in ended.stdout
    assert b"userland" not in ended.stdout
    assert b"IPython" not in ended.stdout
    assert "on_input" in ended.result.message
    assert await value(client, "x = 1\nx + 1") == "2"


@pytest.mark.parametrize(
    "code",
    ["input()", "import getpass; getpass.getpass()", "import sys; sys.stdin.read()", "import sys; next(sys.stdin)"],
)
async def test_reading_without_a_reader_says_what_to_do_in_the_users_frames(client: Client, code: str) -> None:
    ended = await run(client, code)
    assert "on_input" in ended.result.message
    shown = texts(ended, "stderr")
    assert shown.count("EOFError") == 2
    assert "sandmesh" not in shown.replace("sandmesh's", "")


@pytest.mark.parametrize("code", ["1 +", "def f(:\n    pass", "x = (", "  a\n b", "exec('1 +')", "eval('1 +')"])
async def test_the_message_of_a_syntax_error_is_what_was_shown(client: Client, code: str) -> None:
    ended = await run(client, code)
    assert ended.result.message in texts(ended, "stderr")
    assert "interactiveshell" not in texts(ended, "stderr")

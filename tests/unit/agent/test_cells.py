"""Python cells in a real sandbox."""

from __future__ import annotations

import asyncio
import base64
import json
import textwrap
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from sandmesh.api.call.v1 import call_pb2 as pb

from .client import Channel, Client, Ended
from .sandbox import Ground, Sandbox, peak, resident, talking

pytestmark = pytest.mark.needs("user namespaces")


def start(client: Client, code: str, timeout: float | None = None, **envelope: Any) -> Channel:
    """Start a cell."""
    arguments = {"code": code} if timeout is None else {"code": code, "timeout": timeout}
    return client.start("run_ipython_cell", json.dumps(arguments).encode(), **envelope)


async def run(client: Client, code: str, timeout: float | None = None) -> Ended:
    """Run a cell to its end."""
    return await start(client, code, timeout).end()


def texts(ended: Ended, description: str = "stdout") -> str:
    """Return the text of a cell's content blocks."""
    blocks = [json.loads(block) for block in ended.blocks]
    return "".join(block["text"] for block in blocks if block["type"] == "text" and block["description"] == description)


async def test_the_value_of_the_last_expression_is_a_text_block(client: Client) -> None:
    ended = await run(client, "1+1")
    assert [json.loads(block) for block in ended.blocks] == [
        {"type": "text", "text": "2", "annotations": None, "description": "stdout"}
    ]
    assert (ended.result.reason, ended.result.is_error) == (pb.END_REASON_EXITED, False)


async def test_a_short_cell_comes_in_one_frame(client: Client) -> None:
    await run(client, "1+1")
    frames = [(await run(client, "1+1")).frames for _ in range(10)]
    # One that the machine holds up for longer than the agent gathers comes in two.
    assert 1 in frames


async def test_what_is_printed_is_stdout_byte_for_byte(client: Client) -> None:
    ended = await run(client, "import os\nprint('Hello, World!'); _ = os.write(1, b'\\xff\\xfe raw')")
    assert ended.stdout == b"Hello, World!\n\xff\xfe raw"


async def test_streams_and_displays_keep_the_order_in_which_they_were_written(client: Client) -> None:
    code = """
        import sys
        print('one'); print('two', file=sys.stderr); print('three'); display('four'); print('five')
    """
    ended = await run(client, code)
    order = [event.output.data or json.loads(event.content.json)["text"].encode() for event in ended.events[1:-1]]
    assert order == [b"one\n", b"two\n", b"three\n", b"'four'", b"five\n"]


async def test_more_displays_than_fit_and_what_is_written_between_them_keep_their_order(client: Client) -> None:
    code = """
        import os
        from IPython.display import publish_display_data as show
        for n in range(1500):
            show({'text/plain': f'shown {n} '})
            if n % 7 == 0:
                _ = os.write(1, f'written {n} '.encode())
            if n % 50 == 0:
                print(f'printed {n} ')
    """
    ended = await start(client, code, window_bytes=64 << 10).end()
    pieces = [event.output.data.decode() or json.loads(event.content.json)["text"] for event in ended.events[1:-1]]
    wanted = [
        f"shown {n} " + (f"written {n} " if n % 7 == 0 else "") + (f"printed {n} \n" if n % 50 == 0 else "")
        for n in range(1500)
    ]
    assert "".join(pieces) == "".join(wanted)


async def test_an_exception_is_a_plain_traceback_and_an_error(client: Client) -> None:
    ended = await run(client, "1/0")
    assert ended.result.is_error
    assert ended.result.message == "ZeroDivisionError: division by zero"
    assert "ZeroDivisionError: division by zero" in texts(ended, "stderr")
    assert "\x1b" not in texts(ended, "stderr")
    assert "sandmesh" not in texts(ended, "stderr")


async def test_a_syntax_error_is_an_error(client: Client) -> None:
    ended = await run(client, "1 +")
    assert ended.result.is_error
    assert "SyntaxError" in texts(ended, "stderr")


async def test_variables_stay_for_the_next_cell(client: Client) -> None:
    await run(client, "kept = 41")
    assert texts(await run(client, "kept + 1")) == "42"


async def test_what_completes_names_is_there_when_it_is_looked_for(client: Client) -> None:
    ended = await run(client, "print(get_ipython().complete(None, '%confi')[1])")
    assert ended.stdout == b"['%config']\n"
    listed = await run(client, "%config")
    assert b"IPCompleter" in listed.stdout
    changed = await run(client, "%config IPCompleter.greedy = True\nprint(get_ipython().Completer.greedy)")
    assert changed.stdout == b"True\n"


async def test_magics_shell_escapes_and_top_level_await_work(client: Client) -> None:
    assert (await run(client, "%%bash\necho from bash")).stdout == b"from bash\n"
    assert (await run(client, "!echo from a shell")).stdout == b"from a shell\n"
    assert texts(await run(client, "import asyncio\nawait asyncio.sleep(0, 'awaited')")) == "'awaited'"


async def test_a_line_that_ipython_takes_for_a_command_is_one(client: Client) -> None:
    assert texts(await run(client, "pwd")) == "'/workspace'"
    await run(client, "from IPython.core.macro import Macro\nagain = Macro('6*7\\n')")
    assert texts(await run(client, "again")) == "42"
    await run(client, "pwd = 7")
    assert texts(await run(client, "pwd")) == "7"
    await run(client, "del pwd")
    await run(client, "%autocall 2")
    assert texts(await run(client, "len 'abc'")).endswith("3")
    await run(client, "%autocall 0")
    assert (await run(client, "len 'abc'")).result.is_error


async def test_ipython_is_configured_by_its_users(client: Client) -> None:
    await run(client, "%config InteractiveShell.ast_node_interactivity = 'all'")
    assert texts(await run(client, "1\n2")) == "12"
    await run(client, "%config InteractiveShell.ast_node_interactivity = 'last_expr'")
    assert texts(await run(client, "1\n2")) == "2"
    code = """
        from IPython.core.prefilter import PrefilterChecker
        class Own(PrefilterChecker):
            def check(self, line): print("checked")
        manager = get_ipython().prefilter_manager
        own = Own(shell=get_ipython(), prefilter_manager=manager)
        manager.register_checker(own)
    """
    await run(client, textwrap.dedent(code))
    assert (await run(client, "1+1")).stdout == b"checked\n"
    await run(client, "manager.unregister_checker(own)")
    assert (await run(client, "1+1")).stdout == b""


async def test_a_figure_comes_as_a_png(client: Client) -> None:
    ended = await run(client, "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])")
    assert not ended.result.is_error, texts(ended, "stderr")
    image = next(json.loads(block) for block in ended.blocks if json.loads(block)["type"] == "image")
    assert image["mimeType"] == "image/png"
    assert base64.b64decode(image["data"]).startswith(b"\x89PNG")


async def test_a_table_is_text_with_its_html_beside(client: Client) -> None:
    ended = await run(client, "import pandas as pd\npd.DataFrame({'a': [1]})")
    (block,) = (json.loads(block) for block in ended.blocks)
    assert block["text"] == "   a\n0  1"
    assert "<table" in block["annotations"]["text/html"]


async def test_a_long_value_is_split_into_blocks_that_belong_together(client: Client) -> None:
    ended = await run(client, "'x' * 600_000")
    blocks = [json.loads(block) for block in ended.blocks]
    assert "".join(block["text"] for block in blocks) == repr("x" * 600_000)
    assert [block["annotations"] for block in blocks] == [None, {"continues": True}, {"continues": True}]


async def test_an_image_that_is_too_large_is_said_so(client: Client) -> None:
    code = "from IPython.display import Image\nImage(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(3_000_000), format='png')"
    assert "too large" in texts(await run(client, code), "stderr")


async def test_input_is_refused_in_words(client: Client) -> None:
    ended = await run(client, "input('name? ')")
    assert "takes no input" in ended.result.message


async def test_input_reaches_a_cell_that_takes_it(client: Client) -> None:
    call = start(client, "print(input('name? '))", takes_input=True)
    call.send(input=pb.Input(sequence=1, data=b"Ada\n", end=True))
    ended = await call.end()
    assert ended.stdout == b"Ada\n"
    prompts = [event.input_requested.prompt for event in ended.events if event.HasField("input_requested")]
    assert prompts == ["name? "]
    assert "takes no input" in (await run(client, "input()")).result.message


async def test_closed_streams_are_whole_again_in_the_next_cell(client: Client) -> None:
    await run(client, "import os, sys\nsys.stdout.close(); os.close(1); os.close(2)")
    assert (await run(client, "print('again')")).stdout == b"again\n"


async def test_replaced_streams_are_whole_again_in_the_next_cell(client: Client) -> None:
    await run(client, "import io, os, sys\nsys.stdin = sys.stderr = io.StringIO('x'); os.dup2(2, 1)")
    ended = await run(client, "print('out'); print('err', file=sys.stderr); sys.stdin.readline()")
    assert ended.stdout == b"out\n"
    assert ended.stderr.startswith(b"err\n")
    assert "takes no input" in ended.result.message


async def test_a_process_that_a_cell_forks_ends_with_the_cell(client: Client) -> None:
    ended = await run(client, "import os\nchild = os.fork()\nif child:\n    os.waitpid(child, 0)\n'once'")
    assert texts(ended) == "'once'"
    assert texts(await run(client, "child > 0, Out[max(Out)]")) == "(True, 'once')"


async def test_a_value_before_a_semicolon_is_not_shown(client: Client) -> None:
    assert texts(await run(client, "1;")) == ""
    assert texts(await run(client, "';'")) == "';'"


async def test_the_kernel_works_in_the_workspace_and_finds_modules_there(client: Client) -> None:
    await run(client, "open('made_here.py', 'w').write('value = 7')")
    assert texts(await run(client, "import made_here; made_here.value")) == "7"


async def test_nothing_of_the_agent_can_be_imported_by_user_code(client: Client) -> None:
    ended = await run(
        client, "import sys\n[n for n in sys.modules if 'sandmesh' in n], [p for p in sys.path if 'opt/s' in p]"
    )
    assert texts(ended) == "([], [])"
    assert "ModuleNotFoundError" in texts(await run(client, "import sandmeshd"), "stderr")


@pytest.mark.parametrize(
    ("code", "exit_code", "signal", "reason"),
    [
        ("import os; os._exit(3)", 3, 0, pb.END_REASON_EXITED),
        ("import os; os.kill(os.getpid(), 9)", 0, 9, pb.END_REASON_KILLED),
        ("import ctypes; ctypes.string_at(0)", 0, 11, pb.END_REASON_KILLED),
        ("import os; os.closerange(3, 1024)", 70, 0, pb.END_REASON_EXITED),
    ],
)
async def test_a_dead_kernel_is_reported_and_replaced(
    client: Client, code: str, exit_code: int, signal: int, reason: int
) -> None:
    await run(client, "lost = 1")
    result = (await run(client, code)).result
    assert (result.is_error, result.exit_code, result.signal, result.reason) == (True, exit_code, signal, reason)
    assert "variables are lost" in result.message
    assert "NameError" in (await run(client, "lost")).result.message


async def test_a_kernel_that_died_between_cells_is_said_so(client: Client) -> None:
    pid = (await run(client, "1")).events[0].started.pid
    command = f"kill -9 {pid}; while test -d /proc/{pid}; do :; done"
    await client.start("run_shell_command", json.dumps({"command": command}).encode()).end()
    ended = await run(client, "1+1")
    assert "had died since the last cell" in texts(ended, "stderr")
    assert texts(ended) == "2"


async def test_exit_gives_a_fresh_kernel(client: Client) -> None:
    ended = await run(client, "gone = 1\nexit()")
    assert not ended.result.is_error
    assert "fresh" in ended.result.message
    assert "NameError" in (await run(client, "gone")).result.message


async def test_a_cell_over_its_time_is_interrupted_and_its_kernel_kept(client: Client) -> None:
    await run(client, "kept = 5")
    ended = await run(client, "import time; time.sleep(60)", timeout=0.2)
    assert (ended.result.reason, ended.result.is_error) == (pb.END_REASON_TIMED_OUT, True)
    assert "kept" in ended.result.message
    assert texts(await run(client, "kept")) == "5"


async def test_a_cell_that_ignores_its_interrupt_loses_its_kernel(client: Client) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)"
    await run(client, "ready = True")
    ended = await run(client, code, timeout=1)
    assert ended.result.reason == pb.END_REASON_TIMED_OUT
    assert "replaced" in ended.result.message
    assert texts(await run(client, "1+1")) == "2"


async def test_the_timeout_of_the_envelope_counts_too(client: Client) -> None:
    arguments = b'{"code": "import time; time.sleep(60)"}'
    ended = await client.start("run_ipython_cell", arguments, timeout=Duration(nanos=200_000_000)).end()
    assert ended.result.reason == pb.END_REASON_TIMED_OUT


async def test_a_cancelled_cell_still_gives_its_result(client: Client) -> None:
    call = start(client, "print('runs'); import time; time.sleep(60)")
    await call.until(b"runs")
    call.send(cancel=pb.Cancel())
    assert (await call.end()).result.reason == pb.END_REASON_CANCELLED


async def test_cells_take_turns_and_a_cancelled_one_in_the_queue_never_runs(client: Client) -> None:
    await run(client, "order = []")
    first = start(client, "print('runs'); import time; time.sleep(0.3); order.append(1)")
    await first.until(b"runs")
    second, third = start(client, "order.append(2)"), start(client, "order.append(3)")
    second.send(cancel=pb.Cancel())
    ended = await second.end()
    assert ended.result.reason == pb.END_REASON_CANCELLED
    assert not any(event.HasField("started") for event in ended.events)
    await first.end()
    await third.end()
    assert texts(await run(client, "order")) == "[1, 3]"


async def test_a_signal_reaches_the_cell_that_runs(client: Client) -> None:
    call = start(client, "print('runs'); import time; time.sleep(60)")
    await call.until(b"runs")
    call.send(signal=pb.Signal(number=2))
    assert "KeyboardInterrupt" in (await call.end()).result.message


LATE = """
import threading
go, done = threading.Event(), threading.Event()
def late():
    go.wait()
    print('late')
    done.set()
threading.Thread(target=late).start()
"""

BOMB = """
import os
print('bomb', flush=True)
while True:
    try: os.fork()
    except OSError: pass
"""

FORGED = """
import os, socket, struct, time
for fd in [int(name) for name in os.listdir('/proc/self/fd') if int(name) >= 200]:
    try: socket.socket(fileno=os.dup(fd)).sendall({frame})
    except OSError: pass
time.sleep({seconds})
"""


async def test_output_of_a_background_thread_comes_with_the_next_cell(client: Client) -> None:
    await run(client, LATE)
    assert (await run(client, "go.set(); _ = done.wait()")).stdout == b"late\n"


async def test_a_fork_bomb_leaves_the_agent_answering(ground: Ground) -> None:
    async with talking(ground, max_processes=64) as (_, client):
        ended = await run(client, BOMB, timeout=0.5)
        assert ended.result.reason == pb.END_REASON_TIMED_OUT
        after = await run(client, "1+1")
        assert texts(after) == "2", after.result.message
        shell = await client.start("run_shell_command", b'{"command": "true && /bin/echo fine"}').end()
        assert shell.stdout == b"fine\n"


async def test_forged_frames_end_the_kernel_and_nobody_else(ground: Ground) -> None:
    async with talking(ground) as (_, client):
        for frame in ("struct.pack('!IB', 2**31, 16)", "struct.pack('!IB', 1, 99)"):
            ended = await run(client, FORGED.format(frame=frame, seconds=60))
            assert ended.result.is_error
            assert "died" in ended.result.message
        await run(client, FORGED.format(frame="struct.pack('!IB', 5, 16) + b'nope'", seconds=0))
        assert texts(await run(client, "1+1")) == "2"


async def test_a_cell_with_large_code_runs(client: Client) -> None:
    code = f"text = '''{'y' * 3_000_000}'''\nlen(text)"
    arguments = json.dumps({"code": code}).encode()
    call = client.start("run_ipython_cell", arguments[:1000], arguments_size=len(arguments))
    for start_at in range(1000, len(arguments), 1 << 20):
        call.send(argument_chunk=pb.ArgumentChunk(data=arguments[start_at : start_at + (1 << 20)]))
    assert texts(await call.end()) == "3000000"


async def test_a_hundred_megabytes_of_output_leave_the_agent_small(ground: Ground) -> None:
    async with talking(ground) as (sandbox, client):
        await run(client, "1")
        before = resident(sandbox.agent_pid)
        call = start(client, "for _ in range(1600): print('z' * 65_535)")
        total, final = 0, False
        while not final:
            batch, final = await call.batch()
            total += sum(len(event.output.data) for event in batch.events)
            call.acknowledge(batch.events[-1].sequence)
        assert total == 1600 << 16
        assert peak(sandbox.agent_pid) - before < 16 << 10


async def test_calls_of_two_links_share_one_kernel(client: Client, sandbox: Sandbox) -> None:
    async with sandbox.connect() as other:
        await run(client, "shared = 'seen'")
        async with asyncio.timeout(20):
            assert texts(await run(other, "shared")) == "'seen'"

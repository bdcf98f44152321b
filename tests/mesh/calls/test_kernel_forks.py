"""Forks, marks and rewinds of running kernels: what they have, what they lack and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import BaseSandbox, BaseSandboxAsync, Forks, KernelAsync, errors
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import run_mesh

from .test_kernels import busy

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh() -> AsyncGenerator[Mesh]:
    async with run_mesh() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


async def said_by(kernels: Forks[KernelAsync], code: str) -> list[str]:
    """Run a cell in all of them and return what each printed."""
    results = await asyncio.gather(*(kernel.run(code) for kernel in kernels))
    assert not any(result.is_error for result in results), [result.stderr for result in results]
    return [result.text.strip() for result in results]


async def test_forks_have_the_variables_and_modules_and_are_independent(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell(
        "import json, random, os\nimport numpy as np\nrandom.seed(7); np.random.seed(7)\n"
        "state = {'n': 1}\nfile = open('/tmp/lines', 'w+'); file.write('one\\ntwo\\n'); file.flush(); file.seek(0)\n"
        "first = file.readline()"
    )
    forks = await box.kernels.fork(3)
    assert (len(forks), forks.error, forks.not_copied) == (3, None, ())
    assert await said_by(forks, "state['n'] += 1; print(json.dumps(state), first.strip(), _i)") != []
    assert len({*await said_by(forks, "print(random.random(), np.random.random(), os.getpid())")}) == 3
    # Each has its own position in the file.
    assert await said_by(forks, "print(file.readline().strip())") == ["two"] * 3
    assert (await box.run_ipython_cell("print(state['n'], file.readline().strip(), end='')")).text == "1 two"
    grandchild = (await forks[0].fork())[0]
    assert (await grandchild.run("print(state['n'], end='')")).text == "2"
    ids = [info.kernel_id for info in await box.kernels.list()]
    assert ids == ["default", *(kernel.id for kernel in forks), grandchild.id]


async def test_a_fork_is_a_kernel_like_any_other(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell("x = 41")
    one, two = await box.kernels.fork(2)
    running = await busy(one)
    await one.interrupt()
    await running
    assert (await one.run("x + 1")).text == "42"
    asked = await one.run("y = input('? '); print(y, end='')", on_input=lambda _: "Ada")
    assert asked.text.endswith("Ada")
    assert "died" in (await two.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")).text
    assert "NameError" in (await two.run("x")).stderr
    await one.restart()
    assert "NameError" in (await one.run("x")).stderr
    for kernel in (one, two):
        await kernel.delete()
    left = await box.run_shell_command("ps -eo pid,ppid,stat,args | grep -c '[d]efunct'; true")
    assert left.text.strip() == "0"
    assert (await box.run_ipython_cell("print(x, end='')")).text == "41"


async def test_what_forks_lack_is_named_and_shared_with_nobody(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell(
        "import asyncio, socket, subprocess, os\n"
        "server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())\n"
        "peer = server.accept()[0]; reader, writer = os.pipe()\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "async def tick():\n    try:\n        await asyncio.sleep(600)\n    finally:\n        print('ended')\n"
        "task = asyncio.create_task(tick(), name='ticker')"
    )
    (fork,) = forks = await box.kernels.fork()
    named = "\n".join(forks.not_copied)
    for lacking in ("asyncio task ticker", "(sleep)", "inet socket 127.0.0.1:", "pipe, descriptor"):
        assert lacking in named
    assert (await fork.run("print(client.recv(5), os.read(reader, 5), end='')")).text == "b'' b''"
    assert "ConnectionRefusedError" in (await fork.run("os.write(writer, b'lost')")).stderr
    assert (await fork.run("import gc; gc.collect(); await asyncio.sleep(0); print('runs', end='')")).text == "runs"
    kept = await box.run_ipython_cell("client.send(b'kept'); print(peer.recv(5), child.poll(), task.done(), end='')")
    assert kept.text == "b'kept' None False"


async def test_a_kernel_with_threads_is_refused_with_their_names_and_goes_on(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell(
        "import threading\nstop = threading.Event()\nthread = threading.Thread(target=stop.wait, name='loader')\n"
        "thread.start()\nx = 1"
    )
    with pytest.raises(errors.WrongState, match=r"1 more thread.*loader"):
        await box.kernels.fork(2)
    await box.run_ipython_cell("stop.set(); thread.join()")
    # A thread that Python does not know, as those of native libraries, holding a lock.
    await box.run_ipython_cell("import _thread\nlock = _thread.allocate_lock(); lock.acquire()")
    await box.run_ipython_cell("_thread.start_new_thread(lock.acquire, ())")
    with pytest.raises(errors.WrongState, match="1 more thread"):
        await box.kernels.fork()
    await box.run_ipython_cell("lock.release()\nimport time; time.sleep(0.1)")
    assert len(await box.kernels.fork()) == 1
    assert (await box.run_ipython_cell("print(x, end='')")).text == "1"


async def test_a_kernel_whose_cell_runs_is_forked_after_it_or_not_at_all(box: BaseSandboxAsync) -> None:
    kernel = await box.kernels.create()
    running = await busy(kernel)
    with pytest.raises(errors.WrongState, match="was not forked"):
        await kernel.fork(timeout=0.2)
    with pytest.raises(errors.WrongState, match="was not forked"):
        await kernel.mark(timeout=0.2)
    waiting = asyncio.create_task(kernel.fork())
    await asyncio.sleep(0)
    await kernel.interrupt()
    await running
    assert len(await waiting) == 1


async def test_forks_that_cannot_be_are_refused_and_what_was_made_is_told(box: BaseSandboxAsync) -> None:
    with pytest.raises(errors.WrongState, match="does not exist"):
        await box.kernels.fork(kernel_id="nobody")
    with pytest.raises(errors.InvalidArgument):
        await box.kernels.fork(0)
    shell = await box.kernels.create("bash")
    with pytest.raises(errors.WrongState, match="only kernels of Python"):
        await shell.fork()
    await shell.delete()
    await box.kernels.fork(200)
    forks = await box.kernels.fork(100)
    assert len(forks) == 55
    assert "256 kernels and marks" in str(forks.error)
    with pytest.raises(errors.WrongState, match="256 kernels and marks"):
        await box.kernels.fork()
    assert await said_by(forks, "print(1 + 1)") == ["2"] * 55


async def test_forks_beyond_the_limit_of_processes_are_told(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], limits={"pids": 30}) as box:
        await box.run_ipython_cell("x = 1")
        forks = await box.kernels.fork(40)
        assert 0 < len(forks) < 30
        assert "limit of processes" in str(forks.error)
        assert await said_by(forks, "print(x)") == ["1"] * len(forks)


async def test_a_kernel_is_rewound_to_a_mark_again_and_again(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell("import random\nsteps = []")
    kernel = await box.kernels.get("default")
    mark = await kernel.mark()
    seen: set[str] = set()
    for _ in range(3):
        assert (await kernel.run("steps.append(1); print(len(steps), end='')")).text == "1"
        seen.add((await kernel.run("print(random.random(), end='')")).text)
        await kernel.rewind(mark)
    assert len(seen) == 3
    later = await kernel.mark()
    other = await box.kernels.create()
    with pytest.raises(errors.WrongState, match="has no mark"):
        await other.rewind(mark)
    running = await busy(kernel)
    await kernel.rewind(mark)
    result = await running
    assert (result.reason, "rewound to" in result.message) == ("CANCELLED", True)  # type: ignore[attr-defined]
    await kernel.rewind(later)
    assert (await kernel.run("print(steps, end='')")).text == "[]"


async def test_a_mark_that_is_gone_leaves_the_kernel_unchanged(box: BaseSandboxAsync) -> None:
    await box.run_ipython_cell("x = 1")
    kernel = await box.kernels.get("default")
    mark = await kernel.mark()
    await kernel.run("import os\nx = 2")
    # Its process is killed by user code.
    await kernel.run(
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    if pid not in ('1', str(os.getpid())): os.kill(int(pid), 9)"
    )
    with pytest.raises(errors.WrongState, match="unchanged, as the mark"):
        await kernel.rewind(mark)
    assert (await kernel.run("print(x, end='')")).text == "2"
    await kernel.drop(mark)
    with pytest.raises(errors.WrongState, match="has no mark"):
        await kernel.rewind(mark)
    with pytest.raises(errors.WrongState, match="does not exist"):
        await kernel.drop(mark)


async def test_the_sync_handles_fork_and_rewind(mesh: Mesh) -> None:
    def work() -> None:
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            box.run_ipython_cell("x = 1")
            one, two = box.kernels.fork(2)
            (third,) = one.fork()
            mark = third.mark()
            assert third.run("x += 1; print(x, end='')").text == "2"
            third.rewind(mark)
            assert [kernel.run("print(x, end='')").text for kernel in (one, two, third)] == ["1"] * 3
            third.drop(mark)

    await asyncio.to_thread(work)

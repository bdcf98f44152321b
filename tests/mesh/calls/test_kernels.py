"""Several kernels of a sandbox: apart, interrupted, restarted, deleted; input, rich results, errors in parts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmesh import (
    BaseSandbox,
    BaseSandboxAsync,
    InputRequested,
    KernelAsync,
    Output,
    Result,
    SandboxService,
    Started,
    errors,
)
from sandmeshd.mesh import Mesh


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


async def busy(kernel: KernelAsync) -> asyncio.Task[object]:
    """Have a kernel run a cell that does not end; it does by now."""
    running, begun = kernel.stream("print('up', flush=True)\nwhile True: pass"), asyncio.Event()

    async def follow() -> Result | None:
        async for event in running:
            if isinstance(event, Output):
                begun.set()
            if isinstance(event, Result):
                return event
        return None

    task: asyncio.Task[object] = asyncio.create_task(follow())
    await asyncio.wait_for(begun.wait(), 30)
    return task


async def test_kernels_have_variables_and_directories_of_their_own(box: BaseSandboxAsync) -> None:
    one, two = await box.kernels.create(), await box.kernels.create("python", "other", "/tmp")
    await asyncio.gather(one.run("x = 1"), two.run("x = 2"), box.run_ipython_cell("x = 3"))
    shown = [(await kernel.run("import os; print(x, os.getcwd())")).text for kernel in (one, two)]
    assert shown == ["1 /workspace\n", "2 /tmp\n"]
    default = await box.kernels.get("default")
    assert (await default.run("x")).text == "3"
    found = [(info.kernel_id, info.language, info.busy) for info in await box.kernels.list()]
    assert found == [("default", "python", False), (one.id, "python", False), ("other", "python", False)]


async def test_a_kernel_whose_directory_cannot_be_entered_is_refused_with_the_reason(box: BaseSandboxAsync) -> None:
    await box.run_shell_command("touch file; mkdir closed; chmod 0 closed")
    for directory, why in (("none", "No such file"), ("file", "Not a directory"), ("closed", "Permission denied")):
        for language in ("python", "bash"):
            with pytest.raises(errors.WrongState, match=f"working directory cannot be entered: {why}"):
                await box.kernels.create(language, cwd=directory)
    assert [kernel.kernel_id for kernel in await box.kernels.list()] == ["default"]


async def test_an_interrupted_cell_ends_and_the_variables_stay(box: BaseSandboxAsync) -> None:
    kernel = await box.kernels.create()
    await kernel.run("x = 41")
    running = await busy(kernel)
    await kernel.interrupt()
    result = await running
    assert isinstance(result, Result)
    assert result.structured is not None
    assert result.structured["error"]["name"] == "KeyboardInterrupt"
    assert (await kernel.run("x + 1")).text == "42"


async def test_a_restarted_kernel_is_fresh_and_what_ran_says_so(box: BaseSandboxAsync) -> None:
    kernel = await box.kernels.create()
    await kernel.run("x = 41")
    running = await busy(kernel)
    await kernel.restart()
    result = await running
    assert isinstance(result, Result)
    assert (result.reason, result.is_error) == ("CANCELLED", True)
    assert "restarted" in result.message
    assert "NameError" in (await kernel.run("x")).stderr
    await kernel.run("y = 1")
    await kernel.restart()
    again = await kernel.run("'y' in globals()")
    assert again.text == "False"


async def test_a_kernel_that_is_restarted_while_it_runs_is_replaced_by_one(box: BaseSandboxAsync) -> None:
    kernel = await box.kernels.get("default")
    processes = "set -- /proc/[0-9]*; echo $#"  # the shell counts by itself: what it began would count, too
    before = (await box.run_shell_command(processes)).stdout
    for _ in range(3):
        running = await busy(kernel)
        await kernel.restart()
        await running
    assert (await kernel.run("1")).text == "1"
    assert (await box.run_shell_command(processes)).stdout == before


async def test_a_deleted_kernel_is_gone(box: BaseSandboxAsync) -> None:
    kernel = await box.kernels.create(kernel_id="short-lived")
    running = await busy(kernel)
    await kernel.delete()
    result = await running
    assert isinstance(result, Result)
    assert "deleted" in result.message
    assert [info.kernel_id for info in await box.kernels.list()] == ["default"]
    gone = await kernel.run("1")
    assert gone.is_error
    assert "Kernel 'short-lived' does not exist" in gone.text
    for act in (kernel.interrupt, kernel.restart, kernel.delete):
        with pytest.raises(errors.WrongState, match="does not exist"):
            await act()


async def test_kernels_that_cannot_be_are_refused(box: BaseSandboxAsync) -> None:
    await box.kernels.create(kernel_id="taken")
    with pytest.raises(errors.WrongState, match="already"):
        await box.kernels.create(kernel_id="taken")
    with pytest.raises(errors.WrongState, match="jupyter_client"):
        await box.kernels.create("cobol")
    with pytest.raises(errors.WrongState, match="default kernel cannot be deleted"):
        await (await box.kernels.get("default")).delete()
    with pytest.raises(errors.WrongState, match="there are default, taken"):
        await box.kernels.get("nothing")
    for language, kernel_id in (("", None), ("python", "a b"), ("python", "")):
        with pytest.raises(errors.InvalidArgument):
            await box.kernels.create(language, kernel_id)


async def test_input_is_asked_for_and_answered(box: BaseSandboxAsync) -> None:
    requests: list[InputRequested] = []

    async def answer(request: InputRequested) -> str:
        requests.append(request)
        return f"answer {len(requests)}"

    kernel = await box.kernels.create()
    code = "import getpass\nprint(input('name? '), getpass.getpass('secret? '), sep='|')"
    assert (await kernel.run(code, on_input=answer)).text == "answer 1|answer 2\n"
    assert requests == [InputRequested("name? ", password=False), InputRequested("secret? ", password=True)]
    assert (await kernel.run("input()", on_input=lambda _: "in a thread")).text == "'in a thread'"
    refused = await kernel.run("input('name? ')")
    assert "takes no input" in refused.stderr


async def test_what_the_answering_function_raises_ends_the_cell_and_is_raised(box: BaseSandboxAsync) -> None:
    def refuse(request: InputRequested) -> str:
        raise LookupError(request.prompt)

    kernel = await box.kernels.create()
    with pytest.raises(LookupError, match="name"):
        await kernel.run("input('name?')", on_input=refuse)
    assert (await kernel.run("'it goes on'")).text == "'it goes on'"


async def test_input_is_an_event_of_a_stream(box: BaseSandboxAsync) -> None:
    kernel = await box.kernels.create()
    events = kernel.stream("print(input('n? ') * 2)", takes_input=True)
    seen: list[object] = []
    async for event in events:
        seen.append(event)
        if isinstance(event, InputRequested):
            await events.answer("ab")
    assert isinstance(seen[0], Started)
    assert InputRequested("n? ", password=False) in seen
    assert b"".join(event.data for event in seen if isinstance(event, Output)) == b"abab\n"
    with pytest.raises(errors.WrongState, match="takes input"):
        await kernel.stream("1").answer("x")


async def test_what_was_raised_comes_in_parts_too(box: BaseSandboxAsync) -> None:
    result = await box.run_ipython_cell("def divide(a):\n    return 1 / a\ndivide(0)")
    assert result.structured is not None
    error = result.structured["error"]
    assert (error["name"], error["value"]) == ("ZeroDivisionError", "division by zero")
    assert any("divide(0)" in line for line in error["traceback"])
    assert (await box.run_ipython_cell("1 +")).structured["error"]["name"] == "SyntaxError"  # type: ignore[index]  # there is one
    assert (await box.run_ipython_cell("1")).structured is None


async def test_rich_results_come_in_all_their_forms(box: BaseSandboxAsync) -> None:
    code = "from IPython.display import display, HTML, SVG, Latex, JSON, Markdown\n"
    shown = await box.run_ipython_cell(
        code + "display(HTML('<b>bold</b>'), Latex('$x^2$'), JSON({'a': [1]}), Markdown('*m*'))\n"
        "SVG(data='<svg xmlns=\"http://www.w3.org/2000/svg\"/>')"
    )
    assert shown.forms("text/html") == ["<b>bold</b>"]
    assert shown.forms("text/latex") == ["$x^2$"]
    assert shown.forms("application/json") == [{"a": [1]}]
    assert shown.forms("text/markdown") == ["*m*"]
    assert shown.forms("image/svg+xml")[0].startswith("<svg")


async def test_data_frames_are_text_and_records(box: BaseSandboxAsync) -> None:
    code = "import pandas as pd\npd.DataFrame({'name': ['a', 'b'], 'size': [1, None]})"
    shown = await box.run_ipython_cell(code)
    assert "name" in shown.text
    assert shown.records == [[{"index": 0, "name": "a", "size": 1.0}, {"index": 1, "name": "b", "size": None}]]
    assert shown.forms("text/html")[0].startswith("<div>")
    many = await box.run_ipython_cell("pd.DataFrame({'n': range(100_000)})")
    assert len(many.records[0]) == 500
    odd = await box.run_ipython_cell("pd.DataFrame([[1, 2]], columns=['same', 'same'])")
    assert "same" in odd.text


async def test_figures_are_images_and_charts(box: BaseSandboxAsync) -> None:
    code = (
        "import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.title('sizes')\n"
        "plt.xlabel('time (s)')\nplt.show()"
    )
    shown = await box.run_code(code)
    assert shown.images[0].startswith(b"\x89PNG")
    (chart,) = shown.charts
    assert (chart["type"], chart["title"], chart["x_unit"]) == ("bar", "sizes", "s")
    assert [(bar["label"], bar["value"]) for bar in chart["elements"]] == [("a", 1), ("b", 2)]
    odd = await box.run_code("plt.plot([float('nan'), 1]); plt.show()")
    assert (len(odd.images), odd.is_error) == (1, False)


async def test_what_makes_charts_prints_nothing(box: BaseSandboxAsync) -> None:
    loud = (
        "import e2b_charts, sys, warnings\nmake = e2b_charts.chart_figure_to_dict\ndef say(figure):\n"
        "    print('out'); print('err', file=sys.stderr); warnings.warn('a warning')\n    return make(figure)\n"
        "e2b_charts.chart_figure_to_dict = say\n"
    )
    shown = await box.run_code(f"{loud}import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()")
    assert (len(shown.images), len(shown.charts), shown.stderr) == (1, 1, "")
    assert "out" not in shown.text


@pytest.mark.needs("chromium")  # whose packages have the font
async def test_figures_have_glyphs_for_chinese_japanese_and_korean_whatever_font_is_chosen(
    box: BaseSandboxAsync,
) -> None:
    figure = "plt.figure(); plt.title('\u9500\u552e \u58f2\u4e0a \ub9e4\ucd9c'); plt.show()"
    for choice in ("", "plt.rcParams['font.family'] = 'serif'\n", "plt.style.use('ggplot')\n"):
        shown = await box.run_code(f"import matplotlib.pyplot as plt\n{choice}{figure}")
        assert (len(shown.images), shown.stderr) == (1, "")
    files = "plt.savefig('a.pdf'); plt.savefig('a.svg'); plt.savefig('a.eps')"
    assert (await box.run_code(f"{figure}\n{files}")).stderr == ""


async def test_an_empty_cell_is_an_empty_result(box: BaseSandboxAsync) -> None:
    for code in ("", "\n", "# nothing"):
        for result in (await box.run_ipython_cell(code), await box.run_code(code)):
            assert (result.text, result.is_error) == ("", False)
    assert (await box.run_code("", "bash")).text == ""


async def test_git_has_an_author_until_somebody_is_named(box: BaseSandboxAsync) -> None:
    commit = "git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'"
    first = await box.run_shell_command(f"git init -q g && cd g && {commit}")
    assert first.stdout == "sandbox <sandbox@localhost>\n"
    named = "git config user.name Ada && git config user.email ada@example.org"
    assert (await box.run_shell_command(f"cd g && {named} && {commit}")).stdout == "Ada <ada@example.org>\n"


async def test_fifty_kernels_at_once_never_mix_their_output(box: BaseSandboxAsync) -> None:
    kernels = await asyncio.gather(*(box.kernels.create() for _ in range(50)))
    code = "import sys\nfor n in range(40):\n    print({0}, n, flush=True)\n    print(-{0}, n, file=sys.stderr)"
    results = await asyncio.gather(*(kernel.run(code.format(1000 + n)) for n, kernel in enumerate(kernels)))
    for number, result in enumerate(results, 1000):
        assert result.stdout == "".join(f"{number} {n}\n" for n in range(40))
        assert result.stderr == "".join(f"-{number} {n}\n" for n in range(40))


async def test_the_sync_handles_do_the_same(mesh: Mesh) -> None:
    def work() -> None:
        thread = threading.current_thread()
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            kernel = box.kernels.create(kernel_id="k")
            assert kernel.run("print(input())", on_input=lambda _: "line").text == "line\n"
            assert [info.kernel_id for info in box.kernels.list()] == ["default", "k"]
            kernel.interrupt()
            kernel.restart()
            kernel.delete()
            assert box.kernels.get("default").run("1 + 1").text == "2"
        assert thread is threading.current_thread()

    await asyncio.to_thread(work)


async def test_what_an_object_prints_while_it_is_shown_comes_before_it(box: BaseSandboxAsync) -> None:
    code = "class Loud:\n    def __repr__(self):\n        print('printed')\n        return 'shown'\nLoud()"
    result = await box.run_ipython_cell(code)
    assert [block["text"].strip() for block in result.content] == ["printed", "shown"]


CANARY = (
    "import ctypes; libc = ctypes.CDLL(None); libc.getauxval.restype = ctypes.c_void_p; "
    "print(ctypes.string_at(libc.getauxval(25), 16).hex())"
)


async def test_kernels_of_one_zygote_share_no_random_numbers_nor_their_programs_canaries(mesh: Mesh) -> None:
    seen: list[list[str]] = []
    for _ in range(2):
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            numbers = "random.random(), secrets.token_hex(8), uuid.uuid4(), os.urandom(8), numpy.random.rand()"
            cell = await box.run_ipython_cell(
                f"import os, random, secrets, uuid, numpy\nprint(*[{numbers}], sep='\\n')"
            )
            program = await box.run_shell_command(f'python3 -c "{CANARY}"')
            seen.append([*cell.stdout.split(), *program.stdout.split()])
    assert [len(numbers) for numbers in seen] == [6, 6]
    assert all(one != other for one, other in zip(*seen, strict=True))


async def test_kernels_of_two_users_share_no_seed_of_hashes(mesh: Mesh) -> None:
    seen: list[str] = []
    service = SandboxService(base_url=mesh.addresses[0])
    await service.start()
    for number, user in enumerate(("ada", "bob", "ada", None, None)):
        (box,) = await service.connect_async(f"hashes-{number}", user_id=user)
        async with BaseSandboxAsync(box.sandbox_id, base_url=mesh.addresses[0]) as its:
            seen.append((await its.run_ipython_cell("print(hash('x'))")).stdout)
        await service.release_async(f"hashes-{number}", user_id=user)
    await service.stop()
    ada, bob, ada_again, nobody, nobody_again = seen
    assert ada == ada_again
    # Sessions that name no user are the administrators'.
    assert nobody == nobody_again
    assert len({ada, bob, nobody}) == 3

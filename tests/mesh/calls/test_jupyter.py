"""Kernels of other languages, by jupyter_client: R's and Java's of a template, and bash's, which a user installs."""

from __future__ import annotations

import pytest

from sandmesh import BaseSandboxAsync, InputRequested, KernelAsync, Output, Result, errors
from sandmeshd.mesh import Mesh

# Jupyter's own Python kernel comes with it.
INSTALL = (
    "pip install -q bash_kernel && python -m bash_kernel.install --sys-prefix"
    " && cd $VIRTUAL_ENV/share/jupyter/kernels && mv bash jupyter-bash"
    " && python -m ipykernel install --sys-prefix --name ipy"
)
ATTEMPTS, SECONDS = 3, 240


@pytest.mark.needs("languages")
@pytest.mark.timeout(300)
async def test_kernels_of_jupyter_are_kernels_as_the_sandboxs_own(mesh: Mesh) -> None:
    async with BaseSandboxAsync(
        base_url=mesh.addresses[0], sandbox_type="languages", network=["packages"], timeout=600
    ) as box:
        with pytest.raises(errors.WrongState, match="there are bash, ir, java, javascript, python"):
            await box.kernels.create("jupyter-bash")
        await check_r(await box.kernels.create("r"))
        await check_java(await box.kernels.create("java"))
        await install(box)
        await check_bash(await box.kernels.create("jupyter-bash", "b"))
        await check_python(await box.kernels.create("ipy"))
        assert [info.language for info in await box.kernels.list()] == ["python", "r", "java", "jupyter-bash", "ipy"]
        left = await box.run_shell_command("ls; javac --version; unset JAVA_HOME; R --version | head -1")
        assert [line.split()[0] for line in left.stdout.splitlines()] == ["javac", "R"]


async def check_r(kernel: KernelAsync) -> None:
    """Values, output, plots, tables, input, errors and interrupts are those of the other languages."""
    assert (await kernel.run("x <- 41; x + 1")).text == "[1] 42"
    written = await kernel.run("cat('out\\n'); message('err')")
    assert (written.stdout, written.stderr.strip()) == ("out\n", "err")
    assert (await kernel.run("plot(1:10)")).images[0].startswith(b"\x89PNG")
    table = await kernel.run("data.frame(a = 1:2, b = c('x', '\u4e2d'))")
    assert "<td>\u4e2d</td>" in str(table.forms("text/html")[0])
    assert (
        await kernel.run("n <- readline('name? '); n", on_input=lambda request: request.prompt[:4])
    ).text == '[1] "name"'
    failed = await kernel.run("stop('no')")
    assert failed.is_error
    assert "Error in eval(expr, envir, enclos): no" in failed.text
    await check_interrupt(kernel, "cat('up\\n'); flush(stdout()); repeat Sys.sleep(0.01)", "interrupted")
    assert (await kernel.run("x")).text == "[1] 41"


async def check_java(kernel: KernelAsync) -> None:
    """Variables stay, errors have names, and an interrupt or a timeout leaves the kernel as it was."""
    assert (await kernel.run("long x = 41; x + 1")).text == "42"
    written = await kernel.run('System.out.println("out"); System.err.println("err");')
    assert (written.stdout, written.stderr) == ("out\n", "err\n")
    for code, message in (
        ("int[] one = {}; one[2]", "ArrayIndexOutOfBounds"),
        ("int y = ;", "illegal start of expression"),
    ):
        failed = await kernel.run(code)
        assert failed.is_error
        assert message in failed.text
    await check_interrupt(kernel, '{ System.out.println("up"); while (true) Thread.sleep(10); }', "interrupted")
    assert "ran out of time" in (await kernel.run("while (true) x++;", timeout=1)).text
    assert int((await kernel.run("x")).text) > 41
    assert "kernel died (exit code 3)" in (await kernel.run("System.exit(3)")).text


async def check_interrupt(kernel: KernelAsync, code: str, message: str) -> None:
    """Code that prints "up" and goes on ends with an error that has the message."""
    shown = ""
    async for event in kernel.stream(code):
        shown += str(event)
        if isinstance(event, Output) and "up" in event.text:
            await kernel.interrupt()
        if isinstance(event, Result):
            assert event.is_error
    assert message in shown


async def install(box: BaseSandboxAsync) -> None:
    """Install them, again where the index falters."""
    for attempt in range(1, ATTEMPTS + 1):
        installed = await box.run_shell_command(INSTALL, timeout=SECONDS)
        if not installed.is_error:
            return
        assert attempt < ATTEMPTS, installed.text


async def check_bash(bash: KernelAsync) -> None:
    """Variables stay, an interrupt ends a command, a restart and a death begin anew."""
    await bash.run("x=41")
    assert (await bash.run("echo $((x + 1)); echo err >&2")).text.split() == ["42", "err"]
    assert (await bash.run("false")).is_error
    # What is interrupted speaks for itself: a shell that is still about to start it would be interrupted alone.
    async for event in bash.stream("sh -c 'echo up; exec sleep 1000'"):
        if isinstance(event, Output) and "up" in event.text:
            await bash.interrupt()
        if isinstance(event, Result):
            assert event.is_error
    assert (await bash.run("echo $x")).text.strip() == "41"
    await bash.restart()
    assert (await bash.run("echo fresh$x")).text.strip() == "fresh"
    assert "kernel died" in (await bash.run("kill -9 $PPID; sleep 1")).text
    assert (await bash.run("echo again")).text.strip() == "again"


async def check_python(kernel: KernelAsync) -> None:
    """Input is asked of the caller, errors come in parts, and images are images."""
    requests: list[InputRequested] = []

    def answer(request: InputRequested) -> str:
        requests.append(request)
        return "Ada"

    assert (await kernel.run("print(input('name? '))", on_input=answer)).text == "Ada\n"
    assert [request.prompt for request in requests] == ["name? "]
    failed = await kernel.run("1/0")
    assert failed.structured is not None
    assert failed.structured["error"]["name"] == "ZeroDivisionError"
    plot = "import matplotlib.pyplot as plt; plt.plot([1]); plt.show()"
    assert (await kernel.run(plot)).images[0].startswith(b"\x89PNG")

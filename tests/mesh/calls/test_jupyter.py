"""Kernels of other languages, by jupyter_client: bash's, which the test installs as a user would."""

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


@pytest.mark.timeout(900)
async def test_kernels_of_jupyter_are_kernels_as_the_sandboxs_own(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], network=["packages"]) as box:
        with pytest.raises(errors.WrongState, match="jupyter_client"):
            await box.kernels.create("jupyter-bash")
        await install(box)
        await check_bash(await box.kernels.create("jupyter-bash", "b"))
        await check_python(await box.kernels.create("ipy"))
        assert [info.language for info in await box.kernels.list()] == ["python", "jupyter-bash", "ipy"]
        with pytest.raises(errors.WrongState, match="there are bash, ipy, javascript, jupyter-bash, python"):
            await box.kernels.create("cobol")


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

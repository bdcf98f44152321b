"""Code of other languages than Python: JavaScript, TypeScript and bash, each with state of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable

import pytest
import pytest_asyncio

from sandmesh import BaseSandbox, BaseSandboxAsync, KernelAsync, Output, Result, ToolResult, errors
from sandmeshd.mesh import Mesh

LANGUAGES = ("js", "ts", "bash")


@pytest_asyncio.fixture(loop_scope="module")
async def box(mesh: Mesh) -> AsyncGenerator[BaseSandboxAsync]:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as opened:
        yield opened


def error_of(result: ToolResult) -> dict[str, object]:
    """Return what was raised, in parts."""
    assert result.is_error
    assert result.structured is not None
    return dict(result.structured["error"])


async def test_the_last_expression_of_javascript_is_its_result_and_variables_stay(box: BaseSandboxAsync) -> None:
    assert (await box.run_code("const a = 40; let b = 1; function add(x) { return x + a }", "js")).text == ""
    assert (await box.run_code("b += 1; add(b)", "javascript")).text == "42"
    assert (await box.run_code("await new Promise((done) => setTimeout(() => done('late'), 5))", "js")).text == "'late'"
    assert (await box.run_code("const c = await Promise.resolve(7)", "js")).text == ""
    assert (await box.run_code("c", "js")).text == "7"
    shown = await box.run_code("({ n: [1, 2] })", "js")
    assert (shown.text, shown.forms("application/json")) == ("{ n: [ 1, 2 ] }", [{"n": [1, 2]}])
    assert (await box.run_code("a", "python")).is_error


async def test_what_javascript_writes_comes_in_its_order(box: BaseSandboxAsync) -> None:
    code = "console.log('one'); console.error('two'); console.log('three'); 'four'"
    result = await box.run_code(code, "js")
    assert [(block["description"], block["text"].strip()) for block in result.content] == [
        ("stdout", "one"),
        ("stderr", "two"),
        ("stdout", "three"),
        ("stdout", "'four'"),
    ]
    many = await box.run_code("for (let n = 0; n < 20000; n++) console.log('line ' + n)", "js")
    assert many.stdout == "".join(f"line {n}\n" for n in range(20_000))


async def test_an_error_of_javascript_has_its_place_in_the_code_alone(box: BaseSandboxAsync) -> None:
    failed = await box.run_code("function deep() {\n  throw new TypeError('no')\n}\ndeep()", "js")
    assert error_of(failed) == {
        "name": "TypeError",
        "value": "no",
        "traceback": ["TypeError: no", "    at deep (<cell 1>:2:9)", "    at <cell 1>:4:1"],
    }
    assert failed.stderr.startswith("TypeError: no\n    at deep (<cell 1>:2:9)\n")
    assert error_of(await box.run_code("function (", "js"))["name"] == "SyntaxError"
    assert error_of(await box.run_code("await Promise.reject(new RangeError('r'))", "js"))["name"] == "RangeError"
    assert error_of(await box.run_code("throw 5", "js"))["value"] == "5"
    assert (await box.run_code("'it goes on'", "js")).text == "'it goes on'"


async def test_modules_are_imported_as_in_files(box: BaseSandboxAsync) -> None:
    await box.fs.write("greeting.mjs", "export const greeting = 'hello'; export default 3\n")
    code = (
        "import path, { join } from 'node:path';\nimport * as os from 'node:os'\n"
        "import three, { greeting as word } from './greeting.mjs'\n"
        "[join('a', 'b'), path.sep, typeof os.cpus, three, word].join(' ')"
    )
    for _ in range(2):
        assert (await box.run_code(code, "js")).text == "'a/b / function 3 hello'"
    assert (await box.run_code("require('fs').readdirSync('.')", "js")).text == "[ 'greeting.mjs' ]"


async def test_objects_of_javascript_say_how_they_are_shown(box: BaseSandboxAsync) -> None:
    code = "({ [Symbol.for('Jupyter.display')]() { return { 'text/plain': 'p', 'text/html': '<b>h</b>' } } })"
    shown = await box.run_code(code, "js")
    assert (shown.text, shown.forms("text/html")) == ("p", ["<b>h</b>"])
    image = await box.run_code("display({ 'image/png': Buffer.from('\\x89PNG', 'latin1') }, { raw: true })", "js")
    assert image.images == [b"\x89PNG"]
    svg = await box.run_code("display({ 'image/svg+xml': '<svg/>', 'text/latex': '$x$' }, { raw: true })", "js")
    assert (svg.forms("image/svg+xml"), svg.forms("text/latex")) == (["<svg/>"], ["$x$"])


async def test_typescript_runs_with_its_types(box: BaseSandboxAsync) -> None:
    await box.run_code("interface Point { x: number }\nconst p: Point = { x: 41 }\nenum Way { In, Out }", "ts")
    assert (await box.run_code("(p.x as number) + Way.Out", "typescript")).text == "42"
    code = "import { type Stats, statSync } from 'node:fs'\nconst s: Stats = statSync('/')\ns.isDirectory()"
    assert (await box.run_code(code, "ts")).text == "true"
    assert error_of(await box.run_code("const bad: = 3", "ts"))["name"] == "SyntaxError"
    assert (await box.run_code("p.x", "ts")).text == "41"


async def test_a_session_of_bash_keeps_variables_functions_and_the_directory(box: BaseSandboxAsync) -> None:
    await box.run_code("x=41; cd /tmp; f() { echo f$x; }; export Y=$x", "bash")
    assert (await box.run_code("f; pwd; printenv Y", "bash")).stdout == "f41\n/tmp\n41\n"
    result = await box.run_code("echo out; echo err >&2; false", "bash")
    assert (result.stdout, "err\n" in result.stderr) == ("out\n", True)
    assert error_of(result) == {"name": "ExitStatus", "value": "1", "traceback": []}
    assert "syntax error" in (await box.run_code("if", "bash")).stderr
    quoted = "cat <<'END' | tr a-z A-Z\nit's $x \"q\"\nEND"
    assert (await box.run_code(quoted, "bash")).stdout == 'IT\'S $X "Q"\n'
    assert (await box.run_code("cat; echo 'no input'", "bash")).stdout == "no input\n"
    assert (await box.run_code(f"echo {'y' * 100_000} | wc -c", "bash")).stdout == "100001\n"
    assert (await box.run_code("echo $x", "bash")).stdout == "41\n"


async def ended(stream: AsyncIterable[object], kernel: KernelAsync) -> Result:
    """Interrupt a cell once it says that it is up, and return how it ended."""
    async for event in stream:
        if isinstance(event, Output) and "up" in event.text:
            await kernel.interrupt()
        if isinstance(event, Result):
            return event
    raise AssertionError("it has no result")


@pytest.mark.parametrize(
    ("language", "kept", "endless"),
    [
        (
            "js",
            "const kept = 41",
            ("console.log('up'); while (true) {}", "console.log('up'); await new Promise(() => {})"),
        ),
        ("ts", "const kept: number = 41", ("console.log('up'); while (true) {}",)),
        ("bash", "kept=41", ("echo up; while true; do sleep 0.05; done", "sh -c 'echo up; exec sleep 1000'")),
    ],
)
async def test_what_is_interrupted_ends_and_its_variables_stay(
    box: BaseSandboxAsync, language: str, kept: str, endless: tuple[str, ...]
) -> None:
    kernel = await box.kernels.create(language)
    await kernel.run(kept)
    for code in endless:
        assert (await ended(kernel.stream(code), kernel)).is_error
    assert (await kernel.run("echo $kept" if language == "bash" else "kept")).text.strip() == "41"


@pytest.mark.parametrize(
    ("language", "endless"),
    [("js", "while (true) {}"), ("ts", "await new Promise(() => {})"), ("bash", "while true; do sleep 0.05; done")],
)
async def test_what_runs_out_of_time_ends_and_a_restart_begins_anew(
    box: BaseSandboxAsync, language: str, endless: str
) -> None:
    kernel = await box.kernels.create(language)
    await kernel.run("globalThis.kept = 1" if language != "bash" else "kept=1")
    result = await kernel.run(endless, timeout=1)
    assert (result.is_error, result["meta"]["reason"]) == (True, "TIMED_OUT")
    await kernel.restart()
    asked = "echo fresh$kept" if language == "bash" else "'fresh' + (globalThis.kept ?? '')"
    assert (await kernel.run(asked)).text.strip().strip("'") == "fresh"


@pytest.mark.parametrize(("language", "code"), [("js", "process.exit(3)"), ("bash", "exit 3")])
async def test_code_that_exits_gets_a_fresh_kernel_the_next_time(
    box: BaseSandboxAsync, language: str, code: str
) -> None:
    left = await box.run_code(code, language)
    assert "asked the kernel to exit" in left.text
    again = await box.run_code("echo again" if language == "bash" else "'again'", language)
    assert again.text.strip().strip("'") == "again"


@pytest.mark.parametrize(("language", "code"), [("js", "process.kill(process.pid, 'SIGKILL')"), ("bash", "kill -9 $$")])
async def test_a_killed_kernel_says_so_and_is_replaced(box: BaseSandboxAsync, language: str, code: str) -> None:
    assert "The kernel died (signal 9, Killed)" in (await box.run_code(code, language)).text
    assert not (await box.run_code("echo again" if language == "bash" else "'again'", language)).is_error


async def test_kernels_of_a_language_are_apart(box: BaseSandboxAsync) -> None:
    one, two = await box.kernels.create("js", "one", "/tmp"), await box.kernels.create("js")
    await asyncio.gather(one.run("var x = 1"), two.run("var x = 2"), box.run_code("var x = 3", "js"))
    shown = [(await kernel.run("`${x} ${process.cwd()}`")).text for kernel in (one, two)]
    assert shown == ["'1 /tmp'", "'2 /workspace'"]
    found = [(info.kernel_id, info.language) for info in await box.kernels.list()]
    assert found == [("default", "python"), ("one", "javascript"), (two.id, "javascript"), ("javascript", "javascript")]


async def test_languages_that_are_not_there_say_what_adds_them(box: BaseSandboxAsync) -> None:
    for language, what in (("r", "r-cran-irkernel"), ("java", "JDK"), ("cobol", "jupyter_client")):
        refused = await box.run_code("1", language)
        assert refused.is_error
        assert what in refused.text
    assert [info.kernel_id for info in await box.kernels.list()] == ["default"]
    await box.kernels.create("python", "bash")
    assert "runs python" in (await box.run_code("1", "bash")).text
    for language in ("", "a b"):
        with pytest.raises(errors.InvalidArgument):
            await box.run_code("1", language)
    assert (await box.run_code("", "js")).text == ""


async def test_the_sync_box_does_the_same(mesh: Mesh) -> None:
    def work() -> None:
        with BaseSandbox(base_url=mesh.addresses[0]) as box:
            assert box.run_code("1 + 1").text == "2"
            assert [box.run_code(code, name).text.strip() for name, code in cases] == ["2", "2", "2"]

    cases = zip(LANGUAGES, ("1 + 1", "(1 as number) + 1", "echo $((1 + 1))"), strict=True)
    await asyncio.to_thread(work)


async def test_a_sandbox_without_nodejs_says_what_adds_it(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], env={"PATH": "/workspace/only"}) as box:
        await box.run_shell_command("/bin/mkdir only && /bin/ln -s /bin/sh only/sh")
        for language in ("js", "ts"):
            refused = await box.run_code("1", language)
            assert refused.is_error
            assert "need Node.js" in refused.text
